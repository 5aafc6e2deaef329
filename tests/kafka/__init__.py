"""Tests against a real Apache Kafka broker, started and stopped by the tests themselves."""
