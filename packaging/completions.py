"""Completions of bash, zsh and fish from what `rattan --dump-help` says.

What a value is follows from its name in the usage line: REV, A and B are revisions, DIR, FILE and PATH are the host's, the NAME of --env
and of `rattan env` is an environment, words in small letters are typed as they are, and after COMMAND comes a command line.
"""
import re

REVISIONS = {"REV", "A", "B"}
FILES = {"FILE", "PATH", "SRC", "DEST"}
DIRS = {"DIR", "HOST"}
# What prints one name a line; the same text for each shell. In front of the revisions, the environment that was given.
ENVS = "rattan env list 2>/dev/null | sed -n '2,$s/ .*//p'"
BASES = "rattan base list 2>/dev/null | sed -n '2,$s/ .*//p'"
REVS = "printf 'head\\nbase\\n'; rattan log -n 20 %s 2>/dev/null | sed -n 's/^\\([0-9a-f]\\{8,\\}\\) .*/\\1/p'"


def value_kind(o):
    """Of an option's value: env, base, rev, file, dir, or "" for what only its user knows."""
    word = re.split(r"[=\[:.]", o["arg"])[0]
    if o["name"] in ("env", "base"):
        return o["name"]
    return "rev" if word in REVISIONS else "file" if word in FILES else "dir" if word in DIRS else ""


def words(c):
    """What stands in the usage line beside options: words to type, and kinds of arguments."""
    args = re.sub(r"\[?(-{1,2}[A-Za-z][\w-]*(?: [A-Z]+)?)\]?", "", c["args"])
    found = re.findall(r"[A-Za-z][A-Za-z-]*", args)
    literal = list(dict.fromkeys(w for w in found if w.islower()))
    kinds = []
    for w in found:
        kind = ("rev" if w in REVISIONS else "file" if w in FILES else "dir" if w in DIRS else
                "command" if w == "COMMAND" else "env" if w == "NAME" and c["name"] == "env" else
                "base" if w == "NAME" and c["name"] == "base" else "")
        if kind and kind not in kinds:
            kinds.append(kind)
    return literal, kinds


def names(o):
    return [f"--{o['name']}"] + ([f"-{o['letter']}"] if "letter" in o else [])


HELP = {"name": "help", "kind": "flag", "help": "this text"}


def options(c):
    return [*c["options"], *([] if any(o["name"] == "help" for o in c["options"]) else [HELP])]


def first_line(s):
    return s.split("\n")[0]


# ---- bash ----

BASH = r"""# bash completion for rattan; made by packaging/help.py from the tables of the program.

_rattan_of() # what belongs to the command $1
{
	case $1 in
@OF@	esac
}

_rattan_value() # of which kind the value of option $2 of command $1 is
{
	case "$1 $2" in
@VALUE@	*) return 1 ;;
	esac
}

_rattan_names() # of kind $1; the environment is $2
{
	case $1 in
	env) @ENVS@ ;;
	base) @BASES@ ;;
	rev) @REVS@ ;;
	esac
}

_rattan_add()
{
	case $1 in
	file) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur") ;;
	dir) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$cur") ;;
	env | base | rev) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$(_rattan_names "$1" "$env")" -- "$cur") ;;
	esac
}

_rattan()
{
	local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} env='' first='' options='' words='' kinds='' kind i
	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ] && [[ $cur != -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@' -- "$cur")
		return
	fi
	i=2
	[[ $cmd != -* ]] || { cmd=serve; i=1; }
	_rattan_of "$cmd"
	[ "$COMP_CWORD" != 1 ] || options+=' @PROGRAM@'
	for (( ; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--env | -e) env=${COMP_WORDS[i + 1]} ;;
		esac
		if kind=$(_rattan_value "$cmd" "${COMP_WORDS[i]}"); then
			i=$((i + 1))
			[ "$i" -lt "$COMP_CWORD" ] || { _rattan_add "$kind"; return; }
		elif [[ ${COMP_WORDS[i]} != -?* ]] || [ "${COMP_WORDS[i]}" = -- ]; then
			[[ ${COMP_WORDS[i]} = -- ]] || first=${first:-$i}
			if [[ " $kinds " == *" command "* ]] && { [ -z "$words" ] || [ "${COMP_WORDS[i]}" = -- ]; }; then
				[ "${COMP_WORDS[i]}" != -- ] || i=$((i + 1))
				if declare -F _command_offset >/dev/null; then
					_command_offset "$i"
				elif [ "$i" = "$COMP_CWORD" ]; then
					mapfile -t COMPREPLY < <(compgen -c -- "$cur")
				else
					_rattan_add file
				fi
				return
			fi
		fi
	done
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
		return
	fi
	[ -n "$first" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	for kind in $kinds; do
		_rattan_add "$kind"
	done
}
complete -F _rattan rattan
"""


def bash(program, commands):
    of, value = "", ""
    for c in commands:
        literal, kinds = words(c)
        of += (f"\t{c['name']}) options='{' '.join(n for o in options(c) for n in names(o))}' words='{' '.join(literal)}' "
               f"kinds='{' '.join(kinds)}' ;;\n")
        for kind in ("env", "base", "rev", "file", "dir", ""):
            which = [f"'{c['name']} {n}'" for o in c["options"] if o["kind"] != "flag" and value_kind(o) == kind for n in names(o)]
            if which:
                value += f"\t{' | '.join(which)}) echo {kind or 'other'} ;;\n"
    return fill(BASH, OF=of, VALUE=value, ENVS=ENVS, BASES=BASES, REVS=REVS % '${2:+-e "$2"}',
                COMMANDS=" ".join(c["name"] for c in commands), PROGRAM=" ".join(n for o in program["options"] for n in names(o)))


def fill(template, **values):
    for k, v in values.items():
        template = template.replace(f"@{k}@", v)
    return template


# ---- zsh ----

ZSH = r"""#compdef rattan
# zsh completion for rattan; made by packaging/help.py from the tables of the program.

_rattan_env() {
	local -a v=(${(f)"$(@ENVS@)"})
	compadd -a v
}

_rattan_base() {
	local -a v=(${(f)"$(@BASES@)"})
	compadd -a v
}

_rattan_rev() {
	local env=${opt_args[-e]:-${opt_args[--env]}}
	local -a v=(${(f)"$(@REVS@)"})
	compadd -a v
}

_rattan_commands() {
	local -a v=(
@COMMANDS@	)
	_describe -t commands 'command' v
}

_rattan() {
	local curcontext=$curcontext state line
	local -A opt_args
	local -a arguments
	if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
		_rattan_commands
		return
	fi
	local cmd=$words[2]
	if [[ $cmd == -* ]]; then
		cmd=serve
		arguments=(
@PROGRAM@		)
	else
		shift words
		(( CURRENT-- ))
	fi
	case $cmd in
@OF@	esac
	_arguments -s $arguments
}

_rattan "$@"
"""
ZSH_ACTION = {"env": "_rattan_env", "base": "_rattan_base", "rev": "_rattan_rev", "file": "_files", "dir": "_directories"}


def zsh_quote(s):
    return "'" + s.replace("'", "'\\''") + "'"


def zsh_text(s):
    return re.sub(r"([\[\]:\\])", r"\\\1", s)


def zsh_option(o):
    n = names(o)
    many = "*" if o["kind"] == "list" else f"({' '.join(n)})" if len(n) > 1 else ""
    value = f":{zsh_text(o.get('arg') or 'value')}:{ZSH_ACTION.get(value_kind(o), ' ')}" if o["kind"] != "flag" else ""
    return "".join(f"\t\t\t{zsh_quote(many + one + '[' + zsh_text(o['help']) + ']' + value)}\n" for one in n)


def zsh_rest(c):
    literal, kinds = words(c)
    if "command" in kinds and not literal:
        return "\t\t\t'(-)*::command line: _normal'\n"
    actions = [f"'words: :({' '.join(literal)})'"] if literal else []
    actions += [f"'{k}s:{k}:{ZSH_ACTION[k]}'" for k in kinds if k in ZSH_ACTION]
    return f"\t\t\t{zsh_quote('*: : _alternative ' + ' '.join(actions))}\n" if actions else ""


def zsh(program, commands):
    of = "".join(f"\t{c['name']})\n\t\targuments+=(\n" + "".join(zsh_option(o) for o in options(c)) + zsh_rest(c) + "\t\t)\n\t\t;;\n"
                 for c in commands)
    return fill(ZSH, OF=of, ENVS=ENVS, BASES=BASES, REVS=REVS % '${env:+-e} ${env:+"$env"}',
                PROGRAM="".join(zsh_option(o) for o in program["options"] if o["name"] != "help"),
                COMMANDS="".join(f"\t\t{zsh_quote(c['name'] + ':' + zsh_text(first_line(c['summary'])))}\n" for c in commands))


# ---- fish ----

FISH = r"""# fish completion for rattan; made by packaging/help.py from the tables of the program.

function __rattan_env
	@ENVS@
end

function __rattan_base
	@BASES@
end

function __rattan_rev
	set -l words (commandline -opc)
	set -l env
	for i in (seq (count $words))
		if contains -- $words[$i] -e --env; and test $i -lt (count $words)
			set env -e $words[(math $i + 1)]
		end
	end
	@REVS@
end

function __rattan_is
	set -l words (commandline -opc)
	test (count $words) -gt 1; and contains -- $words[2] $argv
end

function __rattan_none
	set -l words (commandline -opc)
	test (count $words) -lt 2; or string match -q -- '-*' $words[2]
end

complete -c rattan -f
"""
FISH_VALUE = {"env": "-x -a '(__rattan_env)'", "base": "-x -a '(__rattan_base)'", "rev": "-x -a '(__rattan_rev)'",
              "file": "-r -F", "dir": "-x -a '(__fish_complete_directories)'"}


def fish_quote(s):
    return "'" + s.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_option(condition, o):
    value = " " + FISH_VALUE.get(value_kind(o), "-x") if o["kind"] != "flag" else ""
    letter = f" -s {o['letter']}" if "letter" in o else ""
    return f"complete -c rattan -n {condition}{letter} -l {o['name']}{value} -d {fish_quote(o['help'])}\n"


def fish(program, commands):
    out = fill(FISH, ENVS=ENVS, BASES=BASES, REVS=REVS % "$env")
    for o in program["options"]:
        out += fish_option("__rattan_none", o)
    for c in commands:
        when = f"'__rattan_is {c['name']}'"
        literal, kinds = words(c)
        out += f"\ncomplete -c rattan -n __rattan_none -a {c['name']} -d {fish_quote(first_line(c['summary']))}\n"
        for o in options(c):
            out += fish_option(when, o)
            if c["name"] == "serve" and o is not HELP:
                out += fish_option("__rattan_none", o)
        if literal:
            out += f"complete -c rattan -n {when} -a '{' '.join(literal)}'\n"
        for k in kinds:
            if k == "command":
                out += f"complete -c rattan -n {when} -x -a '(__fish_complete_subcommand)'\n"
            elif k in ("file", "dir"):
                out += f"complete -c rattan -n {when} -F\n"
            else:
                out += f"complete -c rattan -n {when} -a '(__rattan_{k})'\n"
    return out
