#!/usr/bin/env python3
"""Draws the picture of docs/how-it-works.md: docs/pictures/how-it-works.py > docs/pictures/how-it-works.svg"""

WIDTH, HEIGHT = 980, 330
LINE_Y = 170
# Where the marks stand on the line of positions, from the lowest to the highest.
HANDED_OUT, CURSOR, NOW, CEILING, FLEET = 40, 320, 470, 610, 850

parts = []


def text(x, y, words, anchor="middle", size=14, weight="normal"):
    parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">{words}</text>')


def bar(x_from, x_to, color, words):
    parts.append(f'<rect x="{x_from}" y="{LINE_Y - 22}" width="{x_to - x_from}" height="44" fill="{color}"/>')
    text((x_from + x_to) / 2, LINE_Y + 5, words)


def mark(x, up, name, what):
    y_from, y_end = (LINE_Y - 22, LINE_Y - 80) if up else (LINE_Y + 22, LINE_Y + 80)
    parts.append(f'<line x1="{x}" y1="{y_from}" x2="{x}" y2="{y_end}" stroke="#222" stroke-width="2"/>')
    first = y_end - 26 if up else y_end + 18
    text(x, first, name, weight="bold")
    text(x, first + 18, what, size=13)


bar(HANDED_OUT, CURSOR, "#c9d7e8", "claimed: handed out, or with a shard")
bar(CURSOR, NOW, "#b9dcaa", "may be claimed now")
bar(NOW, CEILING, "#d5e8c9", "granted, for later")
bar(CEILING, FLEET, "#f3ead0", "no other daemon may have it")
mark(CURSOR, True, "cursor", "one atomic number, in memory")
mark(NOW, False, "ID clock", "nothing later is claimed")
mark(CEILING, True, "ceiling", "on this machine's disk, 3 s ahead")
mark(FLEET, False, "the fleet's bound", "at the coordinator, 5 min ahead")
text(HANDED_OUT, LINE_Y + 42, "positions of one source, in the order of time \u2192", "start", 13)
text(CEILING, 22, "kill -9: the next start begins here", size=13)
text(FLEET, HEIGHT - 14, "its next holder begins here", size=13)
parts.append(f'<path d="M {CEILING} 28 V 52" stroke="#b03030" stroke-width="2" fill="none"/>')

print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">')
print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
print("\n".join(parts))
print("</svg>")
