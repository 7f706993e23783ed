"""The table of keys is what documentation shows."""

from pathlib import Path

from tidegate.policy import KEYS, Scope, keys_markdown, parse_policy

README = Path(__file__).parents[3] / "envoy" / "README.md"


def test_every_key_is_fully_described() -> None:
    """Name, scope, default, expected value and meaning are there for each key, and units agree with names."""
    for name, key in KEYS.items():
        assert name == key.name
        assert name.startswith("tidegate-")
        assert key.scope in Scope
        assert key.default
        assert key.expected
        assert key.meaning.endswith(".")
        assert ("-ms" in name) == (key.unit == "ms")


def test_numeric_defaults_are_what_the_parser_gives() -> None:
    """A default in the table, written out as a value, changes nothing but what it states."""
    usual = parse_policy([], default_pool="p").request
    for name, key in KEYS.items():
        if key.scope is Scope.REQUEST and key.default.isdigit():
            assert parse_policy([(name, key.default)], default_pool="p").request == usual


def test_the_readme_shows_the_table() -> None:
    """The table in envoy/README.md is the one generated from the keys."""
    text = README.read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- keys:begin -->\n")
    table, end, _ = rest.partition("<!-- keys:end -->")
    assert end
    assert table == keys_markdown()
