"""The rules that make names of the subjects of certificates, as Kafka 4.4 reads them.

`tests/integration/test_certificate_names.py` asks them about thousands of made-up names.
"""

from __future__ import annotations

import pytest

from fencepost.broker.security.principal_mapping import PrincipalMapping


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        ("DEFAULT", "CN=Alice,C=DE", "CN=Alice,C=DE"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka1,OU=ServiceUsers,O=x", "kafka1"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L, DEFAULT", "CN=Bob,OU=Dev", "bob@dev"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L, DEFAULT", "CN=Bob", "CN=Bob"),
        ("RULE:^OU=(.*)$/$1/U", "CN=Bob", None),
        ("RULE:.*/x/", "CN=Bob", "xx"),  # as Java's replaceAll has it
        ("", "CN=Bob", None),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(rules: str, subject: str, expected: str | None) -> None:
    assert PrincipalMapping(rules).name_of(subject) == expected


@pytest.mark.parametrize(
    ("rule", "subject", "expected"),
    [
        (f"{'(.)' * 13}/$13/", "abcdefghijklm", "m"),
        (f"{'(.)' * 13}/$14/", "abcdefghijklm", "a4"),
        ("(a)(b)/$13/", "ab", "a3"),
        ("(a)/$0$01$00/", "a", "aaa"),
        ("(a)/$9/", "a", "$9"),
        ("CN=(?<name>[a-z]+),OU=(?<unit>.+)/${unit}-${name}/U", "CN=bob,OU=dev", "DEV-BOB"),
        (r"(a)/\$\\\x/", "a", "$\\x"),
        (r"(a)/\$1-\/-$1/", "a", "$1-/-a"),
        (r"a/\$1/", "a", "$1"),
        (r"a\sb/x/", "a\x0bb", "x"),
        (r"[\s]+/x/", "\x0b", "x"),
        (r"\S/x/", "\x0b", None),
        (r"\w+/x/", "é", None),
        (r"\d/x/", "٣", None),
        (r"[a\-z&]+/x/", "a-&", "x"),
        (r"[^,=]+/x/", "ab", "x"),
        (r"\Qa.b\E/x/", "a.b", "x"),
        (r"\Qa.b\E/x/", "acb", None),
        (r"a\/b/x/", "a/b", "x"),
        ("a{02}/x/", "aa", "x"),
        ("a]}/x/", "a]}", "x"),
        ("(a|ab)(c|bcd)?/$1$2/", "abcd", "abcd"),
        ("(.*?)/$1$1/", "ab", "ab"),
        ("(.*)/$1/U", "straße", "STRASSE"),
        ("(.*)/$1/L", "İI", "i̇i"),
        ("(.*)/$1/L", "ΑΣ", "ας"),
    ],
)
def test_a_rule_makes_the_name_that_kafka_makes(rule: str, subject: str, expected: str | None) -> None:
    """What Kafka 4.4 on Java 17 answers."""
    assert PrincipalMapping(f"RULE:{rule}").name_of(subject) == expected


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("[a-z&&[^x]]+/x/", "an intersection of classes"),
        ("[a[bc]]/x/", "a union of classes"),
        ("(?=a)a/x/", "a look-ahead"),
        ("(?!a)b/x/", "a look-ahead"),
        ("(?<=a)b/x/", "a look-behind"),
        ("(?<!a)b/x/", "a look-behind"),
        ("(?>a)/x/", "an independent group"),
        ("(?i)a/x/", "an inline flag"),
        ("(?i:a)/x/", "an inline flag"),
        ("(?s)./x/", "an inline flag"),
        (r"(a)\1/x/", "a back-reference"),
        (r"(?<n>a)\k<n>/x/", "a back-reference"),
        ("a*+/x/", "a possessive quantifier"),
        ("a++/x/", "a possessive quantifier"),
        ("a{2}+/x/", "a possessive quantifier"),
        (r"\p{L}/x/", "a class of Unicode or POSIX"),
        (r"\P{Lu}/x/", "a class of Unicode or POSIX"),
        (r"[\p{Alpha}]/x/", "a class of Unicode or POSIX"),
        (r"\h/x/", "a class of white space"),
        (r"\v/x/", "a class of white space"),
        (r"\R/x/", "a line break"),
        (r"\X/x/", "a grapheme cluster"),
        (r"\bx/x/", "a word boundary"),
        (r"\Gx/x/", "the end of the match before"),
        (r"x\Z/x/", "the end before a line end"),
        (r"\x41/x/", "a character by its number"),
        (r"\u0041/x/", "a character by its number"),
        (r"\0101/x/", "a character by its number"),
        (r"\N{DIGIT ONE}/x/", "a character by its name"),
        (r"\cA/x/", "a control character"),
        (r"\y/x/", "an escape without a meaning"),
        (r"[\S]/x/", "this escape in a class"),
        (r"[\w-z]/x/", "a range that begins with a class"),
        ("(a*)*/x/", "a repetition of a group that may match nothing"),
        ("a**/x/", "a repetition of a repetition"),
        ("^*a/x/", "a repetition of a place"),
        ("*a/x/", "a repetition of nothing"),
        ("a{,3}/x/", "a repetition without numbers"),
        ("(a/x/", "a parenthesis that is not closed"),
        ("a)/x/", "a parenthesis that closes nothing"),
        ("[a/x/", "a class that is not closed"),
        ("[]a]/x/", "a class of nothing"),
        ("(?<n>a)(?<n>b)/x/", "a second group of this name"),
        ("(" * 60 + ")" * 60 + "/x/", "more than 50 groups"),
        ("a/$1/", "no group 1"),
        ("(a)/${n}/", "no group 'n'"),
        ("(a)/$x/", "is not followed by the number or the name"),
        ("(a)/${1}/", "is not followed by the number or the name"),
        (r"(a)/\$9/", r"takes \$ before the number of no group for something else"),
        ("(a)/$8$9/", "takes only one number without a group for text"),
    ],
)
def test_a_rule_that_would_mean_something_else_than_in_kafka_is_refused_by_name(rule: str, reason: str) -> None:
    with pytest.raises(ValueError, match="cannot be used") as refused:
        PrincipalMapping(f"RULE:{rule},DEFAULT")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "subject"),
    [(".*/x/", "a\nb"), ("a$/x/", "a\n"), ("a$/x/", "a\u2028"), (".*/$0-/", "𐐀"), ("(.*)/$1/L", "Σ0a")],
)
def test_a_subject_of_which_kafka_may_make_another_name_gets_none(rule: str, subject: str) -> None:
    assert PrincipalMapping(f"RULE:{rule},DEFAULT").name_of(subject) is None
    assert PrincipalMapping("DEFAULT").name_of(subject) == subject


@pytest.mark.parametrize("rules", ["RULE:x", "CN=(.*)", "RULE:(/x/", "DEFAULT RULE:a/b/", "RULE:a/b/X"])
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"expected rules|cannot be used"):
        PrincipalMapping(rules)
