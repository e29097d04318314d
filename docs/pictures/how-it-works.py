#!/usr/bin/env python3
"""Draws the picture of docs/how-it-works.md: docs/pictures/how-it-works.py > docs/pictures/how-it-works.svg

It is narrow, so that a phone shows its words in a size that can be read.
"""

WIDTH, HEIGHT = 450, 400
LEFT, RIGHT = 12, 180
# The heights of the marks on the column of positions, from the lowest position to the highest.
HANDED_OUT, CURSOR, NOW, CEILING, FLEET = 364, 270, 200, 130, 40

parts = []


def text(x, y, words, anchor="start", weight="normal"):
    parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="13" font-weight="{weight}">{words}</text>')


def bar(bottom, top, color, *lines):
    parts.append(f'<rect x="{LEFT}" y="{top}" width="{RIGHT - LEFT}" height="{bottom - top}" fill="{color}"/>')
    for number, words in enumerate(lines):
        text((LEFT + RIGHT) / 2, (bottom + top) / 2 + 5 + 17 * (number - (len(lines) - 1) / 2), words, "middle")


def mark(y, name, *lines):
    parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{RIGHT + 20}" y2="{y}" stroke="#222" stroke-width="2"/>')
    text(RIGHT + 27, y + 5, name, weight="bold")
    for number, words in enumerate(lines):
        text(RIGHT + 27, y + 22 + 17 * number, words)


bar(HANDED_OUT, CURSOR, "#c9d7e8", "claimed: handed out,", "or with a shard")
bar(CURSOR, NOW, "#b9dcaa", "may be claimed now")
bar(NOW, CEILING, "#d5e8c9", "granted, for later")
bar(CEILING, FLEET, "#f3ead0", "no other daemon", "may have it")
mark(FLEET, "the fleet's bound", "at the coordinator, 5 min ahead;", "its next holder begins here")
mark(CEILING, "ceiling", "on this machine's disk, 3 s ahead;", "after kill -9 the next start begins here")
mark(NOW, "ID clock", "nothing later is claimed")
mark(CURSOR, "cursor", "one atomic number, in memory")
text(LEFT, HANDED_OUT + 22, "positions of one source: the higher, the later")

print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">')
print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
print("\n".join(parts))
print("</svg>")
