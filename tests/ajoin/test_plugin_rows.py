"""Rows of plug-ins are those of plain Python: calendar windows, and geometric means of streams and joins."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from ajoin.testing import LocalEngine
from runtime import plugins
from runtime.engine.config import EngineConfig

GEO_MEAN, CALENDAR = "ajoin.examples.geo_mean", "ajoin.examples.calendar_windows"
TROUBLE = "tests.ajoin.troublesome_plugin"
EXAMPLES = (GEO_MEAN, CALENDAR)
S = {"k": "BIGINT", "x": "DOUBLE", "ts": "TIMESTAMP"}
DAY = 86_400_000
FIRST = 1_704_067_200_000  # 1 January 2024, UTC


@pytest.fixture
def engine():
    with LocalEngine(plugins=(*EXAMPLES, TROUBLE)) as made:
        made.create_stream("S", columns=S)
        made.create_stream("R", columns={"k": "BIGINT", "y": "BIGINT", "ts": "TIMESTAMP"})
        yield made


# -- a plain reference ----------------------------------------------------------------------------------------------


def geo_mean(values):
    known = [v for v in values if v is not None]
    if not known or min(known) <= 0:
        return None
    return math.exp(math.fsum(math.log(v) for v in known) / len(known))


def calendar(unit, zone, ts):
    """[start, end) of the unit that holds the time, by the standard library's calendar."""
    here = datetime.fromtimestamp(ts / 1000, ZoneInfo(zone))
    year, month = here.year, here.month
    match unit:
        case "DAY":
            days = [here.toordinal(), here.toordinal() + 1]
        case "WEEK":
            days = [here.toordinal() - here.weekday() + add for add in (0, 7)]
        case "MONTH":
            days = [datetime(year, month, 1).toordinal(), datetime(year + month // 12, month % 12 + 1, 1).toordinal()]
        case "QUARTER":
            first = (month - 1) // 3 * 3
            days = [datetime(year + m // 12, m % 12 + 1, 1).toordinal() for m in (first, first + 3)]
        case "YEAR":
            days = [datetime(y, 1, 1).toordinal() for y in (year, year + 1)]
    dates = [datetime.fromordinal(d).replace(tzinfo=ZoneInfo(zone)) for d in days]
    return tuple(round(d.timestamp() * 1000) for d in dates)


def expected(epochs, window, begins, *, delay, lateness):
    """Rows of SELECT k, GEO_MEAN(x), COUNT(*) GROUP BY k, epoch by epoch; and all tuples that are accepted."""
    held, sent, rows, accepted = {}, Counter(), [], []
    greatest = None
    for number, batch in enumerate(epochs):
        mark = None if greatest is None else greatest - delay
        changed = set()
        for k, x, ts in batch:
            if mark is not None and ts < mark - lateness:
                continue
            accepted.append((number, k, x, ts))
            start, end = window(ts)
            if start >= begins:
                held.setdefault((k, start, end), []).append(x)
                changed.add((k, start, end))
        greatest = max([ts for _, _, _, ts in accepted], default=None)
        now = greatest - delay
        for key, values in held.items():
            k, start, end = key
            if end <= now and (key in changed or mark is None or end > mark):
                rows.append((start, end, sent[key], k, geo_mean(values), len(values)))
                sent[key] += 1
    return rows, accepted


def same(found, wanted):
    def key(row):
        return tuple(v for i, v in enumerate(row) if i != 4)

    found, wanted = sorted(found, key=key), sorted(wanted, key=key)
    assert [key(r) for r in found] == [key(r) for r in wanted]
    for f, w in zip(found, wanted, strict=True):
        assert (f[4] is None) == (w[4] is None)
        assert f[4] is None or math.isclose(f[4], w[4], rel_tol=1e-9)


def random_epochs(rng, epochs=12, tuples=40):
    batches, now = [], FIRST - 200 * DAY
    for _ in range(epochs):
        now += rng.randrange(5 * DAY, 60 * DAY)
        batch = [(rng.randrange(3), rng.choice([None, 0.0, 0.5, 1.5, 2.0, 40.0, 1e-3]), 0) for _ in range(tuples)]
        edges = [calendar("MONTH", "Europe/Berlin", now)[0] + rng.choice([-1, 0, 1]) for _ in range(3)]
        times = [*edges, *(now - rng.randrange(90 * DAY) for _ in range(tuples - len(edges)))]
        batches.append([(k, x, ts) for (k, x, _), ts in zip(batch, times, strict=True)])
    return batches


@pytest.mark.parametrize("seed", range(8))
def test_calendar_windows_and_geometric_means_are_those_of_plain_python(seed):
    """Late tuples, revisions, a query that comes later, windows of several kinds over one stream, and restarts."""
    rng = random.Random(seed)
    epochs = random_epochs(rng)
    delay, lateness = rng.choice([0, 10 * DAY]), rng.choice([0, 25 * DAY, 400 * DAY])
    units = [(u, z) for u in ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR") for z in ("UTC", "Europe/Berlin")]
    chosen = [("MONTH", "UTC"), ("MONTH", "Europe/Berlin"), *rng.sample(units, 2)]
    with LocalEngine(plugins=EXAMPLES, config=EngineConfig(partitions=rng.choice([1, 3]), snapshot_every=7)) as engine:
        engine.create_stream("S", columns=S, watermark_delay_ms=delay, allowed_lateness_ms=lateness)
        ids = {}

        def create(unit, zone, begins):
            id = f"q{len(ids)}"
            written = f"({unit})" if zone == "UTC" and rng.random() < 0.5 else f"('{unit.lower()}', '{zone}')"
            what = "k, GEO_MEAN(x) AS g, COUNT(*) AS n"
            engine.create_query(f"SELECT {what} FROM S GROUP BY k WINDOW CALENDAR {written}", id=id)
            ids[id] = (unit, zone, begins)

        for unit, zone in chosen[:2]:
            create(unit, zone, -math.inf)
        engine.create_query("SELECT k, x, ts FROM S WINDOW CALENDAR (QUARTER, 'Asia/Kolkata')", id="rows")
        later = rng.randrange(1, len(epochs))
        for number, batch in enumerate(epochs):
            if number == later:
                _, seen = expected(epochs[:number], lambda ts: (0, 0), 0, delay=delay, lateness=lateness)
                for unit, zone in chosen[2:]:
                    create(unit, zone, 1 + max(ts for *_, ts in seen))
            engine.push("S", *({"k": k, "x": x, "ts": ts} for k, x, ts in batch))
            engine.run_epoch()
            if rng.random() < 0.3:
                engine.restart(kill=rng.random() < 0.5)
        for id, (unit, zone, begins) in ids.items():
            wanted, accepted = expected(
                epochs, lambda ts, u=unit, z=zone: calendar(u, z, ts), begins, delay=delay, lateness=lateness
            )
            names = ("window_start", "window_end", "revision", "k", "g", "n")
            same([tuple(r[name] for name in names) for r in engine.rows(id)], wanted)
            assert wanted or begins > 0
        found = Counter((r["window_start"], r["window_end"], r["k"], r["x"], r["ts"]) for r in engine.rows("rows"))
        assert found == Counter((*calendar("QUARTER", "Asia/Kolkata", ts), k, x, ts) for _, k, x, ts in accepted)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Pacific/Apia"])
@pytest.mark.parametrize("unit", ["DAY", "WEEK", "MONTH", "QUARTER", "YEAR"])
def test_calendar_windows_at_every_hour_of_the_clock(zone, unit):
    """Days of 23 and 25 hours, midnights that are skipped or come twice, a day that never was (Apia, 30.12.2011)."""
    plugins.load([CALENDAR])
    window = plugins.vocabulary().windows["CALENDAR"].make(unit, zone)
    rng = random.Random(zone + unit)
    moments = [rng.randrange(-2_000_000_000_000, 7_000_000_000_000) for _ in range(300)]
    moments += [1_325_239_200_000 + hour * 1_800_000 for hour in range(-80, 80)]
    for ts in moments:
        start = window.first_alive(ts)
        assert start <= ts < window.end(start)
        assert window.first_start_at_or_after(ts) == (start if start == ts else window.end(start))
        if zone in ("UTC", "Europe/Berlin"):
            assert (start, window.end(start)) == calendar(unit, zone, ts)
        if zone == "Pacific/Apia" and unit == "DAY":
            assert datetime.fromtimestamp(start / 1000, ZoneInfo(zone)).hour == 0


def test_calendar_windows_far_beyond_the_table():
    plugins.load([CALENDAR])
    for zone in ("UTC", "Asia/Tokyo"):
        window = plugins.vocabulary().windows["CALENDAR"].make("MONTH", zone)
        for ts in (-(1 << 60), -(1 << 55), 1 << 55, (1 << 60) + 12_345):
            start = window.first_alive(ts)
            assert start <= ts < window.end(start) and 28 * DAY <= window.end(start) - start <= 31 * DAY


@pytest.mark.parametrize("seed", range(4))
def test_plugin_aggregates_over_joins(engine, seed):
    """GEO_MEAN is scaled by the number of partners; TEST_PLAIN cannot be, so its rows are laid out."""
    rng = random.Random(seed)
    s = [(rng.randrange(4), rng.choice([0.5, 1.0, 3.0, None]), rng.randrange(3000)) for _ in range(60)]
    r = [(rng.randrange(4), rng.randrange(9), rng.randrange(3000)) for _ in range(60)]
    engine.create_query(
        "SELECT R.y % 2 AS odd, GEO_MEAN(x) AS g, TEST_PLAIN(y) AS t, COUNT(*) AS n, "
        "GEO_MEAN(y) FILTER (WHERE y > 2 AND x IS NOT NULL) AS f "
        "FROM S JOIN R ON S.k = R.k GROUP BY R.y % 2 HAVING COUNT(*) > 1 WINDOW TUMBLING (SIZE 1 SECOND)",
        id="q",
    )
    for part in range(3):
        engine.push("S", *({"k": k, "x": x, "ts": ts} for k, x, ts in s if ts // 1000 == part))
        engine.push("R", *({"k": k, "y": y, "ts": ts} for k, y, ts in r if ts // 1000 == part))
        engine.run_epoch()
        engine.restart(kill=True)
    engine.raise_watermark(9000)
    engine.run_epoch()
    groups: dict[tuple[int, int], list[tuple[float | None, int]]] = {}
    for k, x, ts in s:
        for k2, y, ts2 in r:
            if k == k2 and ts // 1000 == ts2 // 1000:
                groups.setdefault((ts // 1000 * 1000, y % 2), []).append((x, y))
    found = {(row["window_start"], row["odd"]): row for row in engine.rows("q")}
    assert found.keys() == {key for key, rows in groups.items() if len(rows) > 1}
    for key, row in found.items():
        rows = groups[key]
        assert (row["t"], row["n"]) == (sum(y for _, y in rows), len(rows))
        assert row["g"] == pytest.approx(geo_mean([x for x, _ in rows]))
        assert row["f"] == pytest.approx(geo_mean([float(y) for x, y in rows if y > 2 and x is not None]))
