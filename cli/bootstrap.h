/*
 * cli/bootstrap.h - what every `rattan bootstrap` does: programs of a distribution as root of trees that are thrown away, and the
 * result as a base. A distribution's own part is a function in cli/bootstrap_NAME.c.
 *
 * Nothing is left but the base: boot_end() removes the environments and bases that were made on the way. Between boot_begin() and
 * boot_end() signals that end a program wait: what is at work ends for them, and after boot_end() they do what they do. One thread.
 */
#pragma once

#include <signal.h>

#include "cli/cli.h"

/* The tree that a step's script is in, as an archive on its output, the same for the same tree; no time in it is later than $e. Options of
 * tar may follow, and "-cf - .". */
#define BOOT_PACK                                                                              \
	"exec tar -C / --sort=name --mtime=@$e --clamp-mtime --numeric-owner --xattrs "        \
	"--xattrs-include=security.capability --exclude='./proc/*' --exclude='./dev/*' "       \
	"--exclude='./sys/*' --exclude='./run/*' --exclude='./tmp/*' --exclude='./var/tmp/*' " \
	"--exclude=./workspace "

struct boot_args {
	const char *name;  /* of the base */
	const char *suite; /* NULL: as the host has it */
	const char *mirror, *variant, *components;
	struct cli_list include; /* packages */
	const char *add;         /* a directory whose content goes over the root; NULL: none */
	const char *tool;        /* of debian: mmdebstrap or debootstrap; NULL: what is there */
	const char *keyring;     /* a file; NULL: the host's */
	bool replace, local, verbose, json;
	const char *config; /* of arch: a file (cli/bootstrap_plan.h); NULL: none */
};

struct boot {
	const struct boot_args *args;
	struct net_rules net; /* which hosts the programs may reach */
	char name
		[48]; /* nobody's before, and held: what a killed one left must not be gone on with */
	char env[2][64]; /* that were made */
	char base[80];
	unsigned nenvs;
	int stopped; /* by this signal */
	bool told;   /* what its network keeps closed */
	bool has_base;
	int data_fd, lock_fd; /* bootstrap_left.c's */
	bool left;            /* something could not be removed: the next bootstrap tries again */
	sigset_t mask;        /* of before */
};

int boot_begin(struct boot *b, const struct boot_args *a) MUST_USE;
void boot_end(struct boot *b);
/* Another environment, on @base ("host": this machine's programs). */
void boot_env(struct boot *b);
struct boot_step {
	const char *base, *what, *script;
	const char *const *words; /* $1 and on, NULL-terminated; at most 16 */
	bool online;
	const char *
		dir; /* its content comes as an archive on standard input, as root's; NULL: none does */
	const char *file; /* comes on standard input as it is; NULL: none does. Not with @dir */
	int out_fd; /* -1: none. What the script writes on standard output goes there; its errors are for people */
	int not_there;      /* an exit code that means: a program is missing; 0: none does */
	const char *remedy; /* what a person can do when it fails: the rest of a sentence */
};
/* In the last environment: -1 when it went well, else an exit code, told. -2: @not_there. */
int boot_run(struct boot *b, const struct boot_step *s) MUST_USE;
/* An archive at @fd, a file, becomes base @name, without the first @strip components of each path: -1, or an exit code, told. */
int boot_import(struct boot *b, int fd, const char *name, unsigned strip) MUST_USE;
/* The same for what it was all for: the base is told, and the exit code is 0. */
int boot_seal(struct boot *b, int fd) MUST_USE;

/* In a script: what follows, in a failure's sentence "in the part WORDS"; also for who looks on with -v. */
#define BOOT_DOING_MARK ":: rattan: "
#define BOOT_DOING      "doing() { echo \"" BOOT_DOING_MARK "$*\" >&2; }\n"

#define BOOT_REMEDY_SCRIPT                                                                 \
	"leave out the package whose script fails, or take another version of it, from a " \
	"mirror of another day"

/* bootstrap_tell.c: a step's program ended with res->code, or by a signal: which part of the step that was, what the program said last, and what to
 * do. The exit code. */
int boot_tell_failed(const struct boot_step *s, struct client_run *cr,
		     const struct run_result *res);
/* bootstrap_left.c: removes what bootstraps that were killed have left, and gives this one its name, which is held until
 * boot_let_go(). */
int boot_hold(struct boot *b, struct diag *diag) MUST_USE;
void boot_let_go(struct boot *b);

struct bootstrap_plan;
int bootstrap_debian(const struct boot_args *a);
/* @plan: what the command line says; released here. */
int bootstrap_arch(const struct boot_args *a, struct bootstrap_plan *plan);
/* The tree of @packages, names with blanks between them, unpacked and installed in the last environment; @servers: lines of a list of
 * mirrors, which b->net reaches. -1, or an exit code, told. */
int bootstrap_by_pacman(struct boot *b, const struct bootstrap_plan *p, const char *servers,
			const char *packages) MUST_USE;
