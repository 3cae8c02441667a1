/*
 * stage3/stage3_abi.h - what the runner and rattan-stage3 say to each other (docs/stage3-abi.md).
 *
 * stage3 is started by bwrap as pid 1 of the sandbox with the descriptors below. It decodes one
 * plan, starts the child that applies it step by step and execs the command, and stays behind as the
 * sandbox's init: it reaps, passes on what the runner asks, and reports how the command ended. When
 * it exits, the kernel kills everything else in the PID namespace.
 *
 * Both ends come from one build and run on one machine: native byte order and sizes. All offsets are
 * implied by counts; every byte of the plan is accounted for, and anything else is refused.
 */
#pragma once

#include <stdint.h>

/* Descriptors at start. 0 and 1 are the command's; 2 is bwrap's own standard error. */
enum stage3_fd {
	STAGE3_FD_PLAN = 3,   /* sealed memfd; not there: STAGE3_MSG_PLAN brings it */
	STAGE3_FD_STATUS = 4, /* SOCK_SEQPACKET: struct stage3_msg both ways */
	STAGE3_FD_STDERR = 5, /* the command's standard error */
	STAGE3_FD_SELF = 6,   /* this program, for bwrap to exec */
	STAGE3_FD_ARGS = 7,   /* bwrap's arguments, read by bwrap (they name the host's paths, and a
				 command line can be read by everybody in the sandbox) */
	STAGE3_FD_COUNT = 8,
	/* STAGE3_PLAN_PID1 alone: a pipe whose end to write is bwrap's, as long as it lives outside */
	STAGE3_FD_LIFE = 8,
	STAGE3_FD_LIFE_HELD = 9, /* that end */
};

/* The steps, in the order in which they are taken. */
enum stage3_step {
	STAGE3_STEP_PLAN,
	STAGE3_STEP_INIT,
	STAGE3_STEP_NETWORK, /* STAGE3_PLAN_LISTEN alone; init's, as the two before */
	STAGE3_STEP_STDIO,
	STAGE3_STEP_FDS,
	STAGE3_STEP_SESSION,
	STAGE3_STEP_SIGNALS,
	STAGE3_STEP_CWD,
	STAGE3_STEP_SHELL,
	STAGE3_STEP_NO_NEW_PRIVS,
	STAGE3_STEP_LANDLOCK,
	STAGE3_STEP_LIMITS,
	STAGE3_STEP_ROOT, /* STAGE3_PLAN_ROOT alone */
	STAGE3_STEP_SECCOMP,
	STAGE3_STEP_EXEC,
	STAGE3_STEP_COUNT,
};

/* Exit codes of stage3's own; the others are the command's, as a shell gives them. */
enum stage3_exit {
	STAGE3_EXIT_FAILED = 125,
	STAGE3_EXIT_NOEXEC = 126,
	STAGE3_EXIT_NOTFOUND = 127
};

#define STAGE3_MAGIC       0x6e616c706e747472ull /* "rttnplan" */
#define STAGE3_VERSION     6u
#define STAGE3_PLAN_MAX    (8u << 20)
#define STAGE3_MAX_ARGS    65536u
#define STAGE3_MAX_ENV     16384u
#define STAGE3_MAX_RULES   256u
#define STAGE3_MAX_LIMITS  16u
#define STAGE3_MAX_FILTERS 2u
#define STAGE3_MAX_INSNS   4096u /* BPF_MAXINSNS: the kernel's own limit */
#define STAGE3_PATH_MAX    4096u

enum stage3_plan_flags {
	STAGE3_PLAN_SHELL = 1 << 0, /* argv[0] is text for bash -c, or sh -c */
	/* One of the standard streams is the terminal of our session: the command is its foreground process group. */
	STAGE3_PLAN_TTY = 1 << 1,
	/* The command itself becomes pid 1, with no init before it, and ends with the bwrap outside. */
	STAGE3_PLAN_PID1 = 1 << 2,
	/* Init takes two ports on 127.0.0.1 of the command's network namespace, and hands the listening sockets to the
	 * runner (STAGE3_MSG_LISTENING); the command is started when the runner says that they are served (STAGE3_MSG_GO). */
	STAGE3_PLAN_LISTEN = 1 << 3,
	/* What the command leaves running when it ends goes on: its end is told at once, and init's is that of the last one. */
	STAGE3_PLAN_LINGER = 1 << 4,
	/* With STAGE3_PLAN_SHELL, where that is bash: at its end it notes how the parts of its last pipeline went and where it
	 * stood (STAGE3_MSG_NOTE). The plan's environment names STAGE3_NOTE_ENV. */
	STAGE3_PLAN_NOTE = 1 << 5,
	/* The command is root of the tree (stage3/root.h). */
	STAGE3_PLAN_ROOT = 1 << 6,
	/* With STAGE3_PLAN_TTY: a process group in its background, which is stopped when it wants to read. */
	STAGE3_PLAN_TTY_BACK = 1 << 7,
	STAGE3_PLAN_ALL = (1 << 8) - 1,
};

/* What bash reads first, from a descriptor that it closes at once; and where it notes, in the sandbox's own tmpfs. */
#define STAGE3_NOTE_ENV  "BASH_ENV=/proc/self/fd/3"
#define STAGE3_NOTE_FILE "/dev/shm/.rattan-end"

/* Nothing has run in the namespace before init: they are free, or something is wrong and nothing is started. */
#define STAGE3_PORT_HTTP  39080
#define STAGE3_PORT_SOCKS 39081

/*
 * The plan: this header, then nlimits struct stage3_limit, nrules struct stage3_rule, the filters'
 * instructions (filter_len[0] of them, then filter_len[1]; 8 bytes each), then strings_len bytes of
 * NUL-terminated strings: cwd, argc arguments, envc variables, nrules paths.
 */
struct stage3_plan_header {
	uint64_t magic;
	uint32_t version;
	uint32_t size; /* of the whole plan */
	uint32_t flags;
	uint32_t argc;
	uint32_t envc;
	uint32_t nrules;
	uint32_t nlimits;
	uint32_t nfilters;
	uint32_t filter_len[STAGE3_MAX_FILTERS];
	uint32_t strings_len;
	int32_t oom_score_adj; /* 0..1000: a hog in the sandbox goes before the host's programs */
	/* enum stage3_right: what Landlock shall handle, as far as the kernel has it; 0: no Landlock. What is
	 * handled is refused but where a rule grants it; a network right or a scope has no rules. */
	uint32_t handled;
	uint32_t required; /* of those: what the kernel must have, or nothing runs */
};
_Static_assert(sizeof(struct stage3_plan_header) == 64, "plan header");

struct stage3_limit {
	uint32_t
		resource; /* RLIMIT_*; soft and hard limit are the lesser of value and hard limit */
	uint32_t reserved; /* 0 */
	uint64_t value;
};
_Static_assert(sizeof(struct stage3_limit) == 16, "plan limit");

/* Landlock's rights; the values are the kernel's (linux/landlock.h), of which older headers lack
 * some: those on files, then those on the network, then the scopes. stage3/landlock.c knows which ABI
 * brought which. */
enum stage3_right {
	STAGE3_EXECUTE = 1 << 0,
	STAGE3_WRITE_FILE = 1 << 1,
	STAGE3_READ_FILE = 1 << 2,
	STAGE3_READ_DIR = 1 << 3,
	STAGE3_REMOVE_DIR = 1 << 4,
	STAGE3_REMOVE_FILE = 1 << 5,
	STAGE3_MAKE_CHAR = 1 << 6,
	STAGE3_MAKE_DIR = 1 << 7,
	STAGE3_MAKE_REG = 1 << 8,
	STAGE3_MAKE_SOCK = 1 << 9,
	STAGE3_MAKE_FIFO = 1 << 10,
	STAGE3_MAKE_BLOCK = 1 << 11,
	STAGE3_MAKE_SYM = 1 << 12,
	STAGE3_REFER = 1 << 13,
	STAGE3_TRUNCATE = 1 << 14,
	STAGE3_IOCTL_DEV = 1 << 15,
	STAGE3_RIGHTS_FS = (1 << 16) - 1,
	STAGE3_BIND_TCP = 1 << 16,
	STAGE3_CONNECT_TCP = 1 << 17,
	STAGE3_RIGHTS_NET = 3 << 16,
	STAGE3_SCOPE_UNIX = 1 << 18,   /* abstract sockets of others */
	STAGE3_SCOPE_SIGNAL = 1 << 19, /* signals to others */
	STAGE3_RIGHTS_SCOPES = 3 << 18,
	STAGE3_RIGHTS_ALL = (1 << 20) - 1,
};

enum stage3_rule_flags {
	STAGE3_RULE_MAY_MISS = 1 << 0, /* skipped when the path does not exist */
	/* Granted on everything below the path but the places of the rules with STAGE3_RULE_HOLE:
	 * Landlock only ever adds rights down a tree, so an exception is drawn around. */
	STAGE3_RULE_AROUND = 1 << 1,
	STAGE3_RULE_HOLE = 1 << 2,
	STAGE3_RULE_ALL = (1 << 3) - 1,
};

struct stage3_rule {
	uint32_t rights; /* of STAGE3_RIGHTS_FS */
	uint32_t flags;  /* enum stage3_rule_flags */
};
_Static_assert(sizeof(struct stage3_rule) == 8, "plan rule");

enum stage3_msg_kind {
	/* to the runner */
	STAGE3_MSG_HELLO = 1, /* init runs; carries its pidfd (SCM_RIGHTS) */
	STAGE3_MSG_READY,     /* all steps but exec are done: value is the Landlock ABI, 0 for none,
				 rights what it handles; steps has a bit per step taken */
	STAGE3_MSG_FAILED,    /* step and error; the command did not run */
	STAGE3_MSG_EXITED,    /* value is the command's wait status */
	STAGE3_MSG_STOPPED,   /* the command's terminal job was stopped by the signal value */
	STAGE3_MSG_LISTENING, /* carries a listening socket; value 0: of HTTP's port, 1: of SOCKS' */
	STAGE3_MSG_NOTE, /* a struct stage3_note, before EXITED, when there is something to note */
	/* from the runner */
	STAGE3_MSG_TERM = 100, /* value is the signal for every process but init */
	STAGE3_MSG_KILL,       /* end everything now */
	STAGE3_MSG_CONT,       /* continue the job; value 1: in the foreground */
	STAGE3_MSG_GO,         /* both listening sockets are served */
	/* The first message to a stage3 that was started without a plan: carries it. Nothing is done before. */
	STAGE3_MSG_PLAN,
	STAGE3_MSG_SIGNAL, /* value is a signal for the command's process group */
};

struct stage3_msg {
	uint32_t kind;
	uint32_t step; /* enum stage3_step */
	int32_t error; /* positive errno */
	int32_t value;
	uint32_t steps;  /* 1 << enum stage3_step */
	uint32_t rights; /* enum stage3_right */
};
_Static_assert(sizeof(struct stage3_msg) == 24, "message");

/* What there is beside the exit code. The command could write into it what it likes. */
#define STAGE3_NOTE_MAX 1024u
struct stage3_note {
	uint32_t kind; /* STAGE3_MSG_NOTE */
	uint32_t left; /* processes that ran when the command ended, and end with it */
	char name[16]; /* of one of them; NUL-terminated */
	uint32_t len;  /* of text, of which no more is sent */
	/* "1 0 0|/path": exit codes of the last pipeline, and the directory at the end. */
	char text[STAGE3_NOTE_MAX];
};
_Static_assert(sizeof(struct stage3_note) == 28 + STAGE3_NOTE_MAX, "note");
