"""Man pages, in man(7) macros, from what `rattan --dump-help` says."""
import itertools
import re
import textwrap

ENVIRONMENT = [
    ("XDG_DATA_HOME", "The store is in rattan below it; without it in ~/.local/share/rattan."),
    ("XDG_RUNTIME_DIR", "Control sockets are in rattan below it; without it below /tmp."),
    ("XDG_CONFIG_HOME", "The settings are in rattan/config.json below it; without it below ~/.config."),
    ("RATTAN_KEEP_STATES, RATTAN_KEEP_DAYS", "How many automatic states a collection keeps, and for how long; see rattan-gc(1)."),
]
FILES = [
    ("~/.local/share/rattan", "The store: all environments, their history and what they contain. Removing the program leaves it."),
    ("~/.config/rattan/config.json", "Settings."),
]


def esc(s):
    """Text that roff prints as it is."""
    s = s.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti").replace('"', "\\(dq")
    return "\n".join("\\&" + line if line.startswith((".", "\\(aq")) else line for line in s.split("\n"))


def bold(s):
    return f"\\fB{esc(s)}\\fP"


def usage(args):
    """A usage line: capitals are to be replaced, all else is typed."""
    return re.sub(r"\\fB([\[\]|. ]+)\\fP", r"\1", "".join(
        f"\\fI{esc(w)}\\fP" if re.fullmatch(r"[A-Z][A-Z0-9]*", w) else bold(w) if re.match(r"[\w-]", w) else esc(w)
        for w in re.findall(r"[A-Z][A-Z0-9]*(?![\w-])|-{0,2}[\w-]+|[^\w-]+", args)))


def option(o):
    names = [f"-{o['letter']}"] if "letter" in o else []
    names.append(f"--{o['name']}")
    text = ", ".join(bold(n) for n in names)
    return text + (f" {usage(o['arg'])}" if "arg" in o else "")


def filled(s):
    """Text that roff fills, in lines short enough for who reads the source."""
    return "\n".join(esc(line) for line in textwrap.wrap(s, 66, break_long_words=False, break_on_hyphens=False))


def item(head, text):
    return f".TP\n{head}\n{filled(text)}\n"


def split(details):
    """Paragraphs by section."""
    out = {"": [], "EXIT STATUS": [], "EXAMPLES": []}
    for p in re.split(r"\n\n", details.rstrip("\n")):
        out["EXIT STATUS" if p.startswith("Exit code") else "EXAMPLES" if p.startswith("Example") else ""].append(p)
    return out


def paragraph(p):
    """Lines that are indented stay as they are; the others are filled."""
    out = []
    for verbatim, lines in itertools.groupby(p.split("\n"), lambda line: line.startswith("  ")):
        if verbatim:
            out += [".RS 4", ".nf", *(esc(line[2:]) for line in lines), ".fi", ".RE"]
        else:
            out += [".PP"] * bool(out) + [filled(" ".join(lines))]
    return "\n".join(out) + "\n"


def section(name, paragraphs):
    """The heading says what the first line of examples says."""
    text = []
    for p in paragraphs:
        p = re.sub(r"^Examples?:\n", "", p)
        text.append(paragraph(p))
    return f".SH {name}\n" + ".PP\n".join(text) if text else ""


def page(title, version, date, name, synopsis, description, options, rest):
    return (f'.\\" Made by packaging/help.py from the tables of the program.\n'
            f'.TH {esc(title.upper())} 1 {date} "rattan {version}" "rattan"\n'
            f".SH NAME\n{esc(title)} \\- {esc(name)}\n"
            f".SH SYNOPSIS\n{synopsis}\n{description}{options}{rest}")


def command(c, version, date):
    parts = split(c["details"])
    options = "".join(item(option(o), o["help"]) for o in c["options"]) + item(bold("--help"), "The options, and an example.")
    synopsis = bold(f"rattan {c['name']}") + (f" {usage(c['args'])}" if c["args"] else "")
    return page(f"rattan-{c['name']}", version, date, c["summary"], synopsis,
                section("DESCRIPTION", parts[""] or [c["summary"][0].upper() + c["summary"][1:] + "."]),
                ".SH OPTIONS\n" + options,
                section("EXIT STATUS", parts["EXIT STATUS"]) + section("EXAMPLES", parts["EXAMPLES"]) +
                ".SH SEE ALSO\n.BR rattan (1)\n")


def program_page(program, commands, version, date):
    parts = split(program["details"])
    listed = "".join(f".TP\n.BR rattan\\-{esc(c['name'])} (1)\n{filled(c['summary'])}\n" for c in commands)
    return page("rattan", version, date, "a copy-on-write sandbox for AI agents and for people",
                bold("rattan") + f" {usage(program['args'])}",
                section("DESCRIPTION", [program["summary"], *parts[""]]),
                ".SH COMMANDS\n" + listed + ".SH OPTIONS\nWithout a command the options are those of\n.BR rattan\\-serve (1),\nand:\n" +
                "".join(item(option(o), o["help"]) for o in program["options"]),
                section("EXIT STATUS", parts["EXIT STATUS"]) +
                ".SH ENVIRONMENT\n" + "".join(item(bold(k), v) for k, v in ENVIRONMENT) +
                ".SH FILES\n" + "".join(item(bold(k), v) for k, v in FILES) +
                section("EXAMPLES", parts["EXAMPLES"]) +
                ".SH SEE ALSO\n.BR bwrap (1),\n.BR fusermount3 (1)\n")


def pages(program, commands, version, date):
    yield "rattan.1", program_page(program, commands, version, date)
    for c in commands:
        yield f"rattan-{c['name']}.1", command(c, version, date)
