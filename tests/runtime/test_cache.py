"""What a worker keeps: bounded, the least recently used goes first."""

from __future__ import annotations

from runtime.machine.cache import BoundedCache


def test_the_least_recently_used_goes_first():
    cache = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(k) for k in "abc"] == [1, None, 3]


def test_weights_are_bounded_but_one_value_always_fits():
    cache = BoundedCache(10, len, 5)
    for text in ("ab", "cd", "ef"):
        cache.put(text, text)
    assert [cache.get(t) for t in ("ab", "cd", "ef")] == [None, "cd", "ef"]
    cache.put("cd", "c")  # a value that is replaced gives its weight back
    cache.put("gh", "gh")
    assert [cache.get(t) for t in ("cd", "ef", "gh")] == ["c", "ef", "gh"]
    cache.put("long", "longer than five")
    assert len(cache) == 1
    cache.drop("long")
    cache.put("abcde", "abcde")
    cache.put("", "")
    assert cache.get("abcde") == "abcde"


def test_a_value_is_made_once_while_it_is_kept():
    cache, made = BoundedCache(1), []
    for key in ("a", "a", "b", "a"):
        cache.get_or_make(key, lambda key=key: made.append(key) or key)
    assert made == ["a", "b", "a"]


def test_only_what_is_wanted_stays():
    cache = BoundedCache(9)
    for n in range(6):
        cache.put(n, str(n))
    cache.keep(lambda n: n % 2 == 0)
    assert [n for n in range(6) if cache.get(n) is not None] == [0, 2, 4]
    cache.clear()
    assert len(cache) == 0
