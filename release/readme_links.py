"""Links in a README that lead to files of the repository, for a reader who has the README alone."""

from __future__ import annotations

import posixpath
import re

FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]`]|`[^`]*`)*)\]\((?P<target>[^()\s]+)\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)


def absolute(text: str, folder: str, repository: str, tag: str) -> str:
    """Return the page in `folder` with links into the repository at `tag`; without an address for that, links become their text.

    >>> absolute("[how](../b.md#c), ![plot](d.svg)", "a", "https://forge.example/us/it", "v1")
    '[how](https://forge.example/us/it/blob/v1/b.md#c), ![plot](https://forge.example/us/it/raw/v1/a/d.svg)'
    >>> absolute("[how](../b.md#c), [the same](#c), ![plot](d.svg)", "a", "", "v1")
    'how, [the same](#c), '
    """

    def replace(link: re.Match) -> str:
        if ELSEWHERE.match(link["target"]):
            return link[0]
        if not repository:
            return "" if link["image"] else link["text"]
        path, hash_, anchor = link["target"].partition("#")
        kind = "raw" if link["image"] else "blob"
        target = f"{repository}/{kind}/{tag}/{posixpath.normpath(posixpath.join(folder, path))}{hash_}{anchor}"
        return f"{link['image']}[{link['text']}]({target})"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)
