"""What `farpost sql` lets through: one statement that only reads.

The engine behind it would also run COPY TO and CREATE EXTERNAL TABLE, so the text is read here
first. Comments are taken out, and what is left is what the engine gets: both then see one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from schemas.errors import BadQuery

QUERY_CHARS_MAX = 100_000

# Literals and quoted names stay whole. `E'…'`, `U&'…'` and `$tag$…` are left out on purpose:
# they have rules of their own about where they end.
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--[^\r\n]*|/\*(?:(?!/\*|\*/).)*\*/)
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*"|`[^`]*`)
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d\w*)
    | (?P<end>;)
    | (?P<sign>/(?!\*)|[-+*%=<>!~^|&.,:?@()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_BEGIN = ("select", "with")
_CHANGES = frozenset({"insert", "update", "delete", "merge", "into"})


def read_only(text: str) -> str:
    """The statement without comments and final semicolons, or BadQuery if it is not one query."""
    if len(text) > QUERY_CHARS_MAX:
        raise BadQuery(f"the query has {len(text):,} characters, {QUERY_CHARS_MAX:,} are allowed")
    kept: list[str] = []
    words: list[str] = []
    ended = False
    before = ""  # what came directly before: E'…' and U&'…' have rules of their own
    for kind, token, after in _tokens(text):
        if kind == "end":
            ended = True
        elif kind == "space":
            kept.append(token)
        elif kind == "comment":
            kept.append(" " + "\n" * token.count("\n"))  # so that lines keep their numbers
        else:
            if ended:
                raise BadQuery("only one statement at a time: something follows the semicolon")
            if kind == "text" and (before == "&" or before[-1:].isalnum()):
                raise BadQuery("write a text as '…', with a space before the quote")
            if kind == "word":
                words.append(token.lower())
            kept.append('"offset"' if _names_offset(token, after) else token)
        before = token
    return _checked("".join(kept).strip(), words)


def _tokens(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind and text of each token, and what follows it."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadQuery(_unreadable(text, at))
        at = match.end()
        yield str(match.lastgroup), match.group(), text[at : at + 80]


def _names_offset(token: str, after: str) -> bool:
    """The column, not the clause: `select partition, offset` would be read as a clause."""
    return token.lower() == "offset" and not after.lstrip()[:1].isdigit()


def _checked(statement: str, words: list[str]) -> str:
    if not words or not statement.lower().startswith(_BEGIN) or words[0] not in _BEGIN:
        raise BadQuery(
            "only reading is possible here: the statement must begin with SELECT or WITH"
        )
    for word in words:
        if word in _CHANGES:
            raise BadQuery(
                f"only reading is possible here: {word.upper()} is not allowed (a column of that "
                f'name can be written as "{word}")'
            )
    return statement


def _unreadable(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    what = {
        "'": "a quote that is not closed",
        '"': "a quote that is not closed",
        "`": "a quote that is not closed",
        "/": "a comment that is not closed, or one inside another",
    }.get(text[at], f"a character that has no place here: {text[at]!r}")
    return f"the query cannot be read at line {line}, column {column}: {what}"
