/*
 * cli/cli.h - what the commands of `rattan` share: options, errors, exit codes, the environment.
 *
 * A command is one entry in main.c's table and one file. Errors are one sentence on stderr that says
 * what to do; exit codes are stable: see enum cli_exit. Single-threaded.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "cli/config.h"
#include "client/client.h"
#include "client/hostdir.h"
#include "runner/role.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_NOT_FOUND = 3,
	CLI_CONFLICT = 4,
	CLI_TIMED_OUT = 124,  /* run: the command took longer than --timeout */
	CLI_NO_SANDBOX = 125, /* run: the sandbox could not start */
};

/* ---- options (opts.c) ---- */

struct cli_list {
	const char **v;
	size_t n;
};
void cli_list_release(struct cli_list *l);
#define cleanup_list __attribute__((cleanup(cli_list_release)))

enum cli_kind {
	CLI_FLAG /* bool */,
	CLI_TEXT /* const char * */,
	CLI_LIST /* struct cli_list */
};

struct cli_opt {
	const char *name; /* without dashes; NULL ends the table */
	char letter;      /* or 0 */
	enum cli_kind kind;
	void *to;
	const char *arg; /* of the option, for the help */
	const char *help;
};

struct cli_command {
	const char *name;
	const char *args; /* after the name, for the help */
	const char *summary;
	const char *
		details; /* paragraphs, then "Example:" and indented lines that the tests run; for --help and the man page */
	int (*run)(int argc, char **argv); /* argv[0] is the command's name; an enum cli_exit */
};

/* Read @argv[1..]. *ret_rest: what is no option (into @argv, permuted); with @stop_early all from
 * the first one on. -1: go on; else an exit code, after an error or --help was printed. */
int cli_parse(const struct cli_command *cmd, const struct cli_opt *opts, int argc, char **argv,
	      bool stop_early, char ***ret_rest, int *ret_n) MUST_USE;
/* What @from, the settings' object @where, says for those of @opts that the command line did not: names are the options', a
 * flag is a bool, a text a text or a number, a list a list of texts. @from's texts are lent. -1, or an exit code. */
int cli_opts_fill(const struct cli_opt *opts, const cJSON *from, const char *where) MUST_USE;
/* The nearest of @names (NULL-terminated) to @given, or NULL when none is near. */
const char *cli_nearest(const char *given, const char *const *names);

/* ---- what the tables say (help.c) ---- */

/* An option's line of the help. */
void cli_help_opt(const struct cli_opt *o);
/* What --help prints, of a command's own options; an exit code. */
int cli_help(const struct cli_command *cmd, const struct cli_opt *opts);
/* The same as a JSON object, for packaging/help.py; an exit code. Every command answers --dump-help with it, by cli_parse,
 * before it does anything. */
int cli_help_dump(const struct cli_command *cmd, const struct cli_opt *opts);

/* ---- errors and output (out.c) ---- */

/* "rattan: ..." on stderr; returns @code. */
int cli_fail(int code, const char *fmt, ...) PRINTF(2, 3);
/* The same for an errno of the client library: @diag's sentence, or @what and the kernel's words. */
int cli_fail_errno(int r, const struct diag *diag, const char *what);
int cli_exit_of(int r);
/* Text of unknown origin, on one line and without control characters. */
void cli_put(FILE *f, const char *s);
/* The same of what has lines and tabs. */
void cli_put_text(FILE *f, const char *s, size_t n);
void cli_put_size(FILE *f, uint64_t bytes);
/* Owned; bytes that are not UTF-8 replaced. Nothing happens without memory. */
/* A line of an image's history; @mark stands before what it says. */
void cli_put_step(const struct ctl_step *s, const char *mark);
void cli_json_step(cJSON *list, const struct ctl_step *s);
void cli_json_str(cJSON *o, const char *key, const char *s);
int cli_print_json(cJSON *o); /* takes it; an exit code */
/* Flushes stdout; an exit code, so that a full disk is not taken for success. */
int cli_done(void);

/* ---- how far it is, on stderr (bar.c) ---- */

struct cli_bar {
	bool tty, shown;
	long long last; /* second of the last line */
};
void cli_bar_start(struct cli_bar *b);
/* Before anything else is printed. */
void cli_bar_clear(struct cli_bar *b);
/* "VERB WHAT: DONE of TOTAL"; @total 0: not known. */
void cli_bar_put(struct cli_bar *b, const char *verb, const char *what, uint64_t done,
		 uint64_t total);

/* ---- work that may take long (work.c) ---- */

/* SIGINT, SIGTERM and SIGHUP, but those that this process ignores. */
void cli_ending_signals(sigset_t *ret);
/* Is one of them held and has come? */
bool cli_ending_came(const sigset_t *of);

/* From the beginning to the end signals that end a program are held. Nothing is told of what takes less than a second. */
struct cli_work {
	struct cli_bar bar; /* to be cleared before anything else is printed */
	const char *verb;
	sigset_t ending, old;
	long long began;
	bool told;
};
void cli_work_begin(struct cli_work *w, const char *verb);
/* Calls for ctl_client.h, with a struct cli_work; nonzero: a signal has come. */
int cli_work_on(void *work, const char *stage, uint64_t done, uint64_t total);
int cli_work_bytes(void *work, const char *stage, uint64_t done, uint64_t total);
int cli_work_idle(void *work);
/* The same around calls to a daemon, which tells nothing while it works. */
void cli_wait_begin(struct cli_work *w, struct ctl *ctl, const char *verb);
void cli_wait_end(struct cli_work *w, struct ctl *ctl, const char *said);
/* When a signal has come, says "interrupted; SAID" and lets it end the process, unless it was held before the beginning. @said NULL: all
 * was done. */
void cli_work_end(struct cli_work *w, const char *said);

/* ---- the environment (envname.c) ---- */

enum {
	CLI_ENV_MAX = 65
};
/* The name of a directory's environment: its last component and a digest of its path. One that writes
 * through to it (@bound) is another than the one that shows it copy-on-write. */
void cli_env_name(const char *dir, bool bound, char ret[static CLI_ENV_MAX]);
/* The one a command without -e means: that of the current directory, or of the nearest one above that
 * has one, else "default". Connects; an exit code after an error, or -1. @env NULL: choose. */
int cli_connect(const char *env, struct client **ret, struct ctl **ret_ctl) MUST_USE;

/* The name of that environment, without connecting to it. */
void cli_env_here(char ret[static CLI_ENV_MAX]);

/* The agent's writable places and @more, NULL-terminated; NULL when @more is empty. The array is the
 * caller's, the strings are lent. */
int cli_writable(const struct cli_list *more, const char ***ret) MUST_USE;

struct cli_env {
	struct client *client;
	struct ctl *ctl;
};
static inline void cli_env_release(struct cli_env *e)
{
	if (e->ctl)
		client_ctl_put(e->client, e->ctl, false);
	client_free(e->client);
}
#define cleanup_env __attribute__((cleanup(cli_env_release)))

/* ---- directories of the host (hostdir.c) ---- */

struct cli_dir {
	struct hostdir dir;
	char *mount; /* owned */
	bool rw;
};
struct cli_dirs {
	struct cli_dir *v;
	size_t n;
	const char *const *roots; /* the settings' bind_roots; lent */
};
void cli_dirs_release(struct cli_dirs *d);
#define cleanup_dirs __attribute__((cleanup(cli_dirs_release)))

enum cli_dir_kind {
	CLI_BIND,
	CLI_BIND_RO,
	CLI_OVERLAY
};
/* Add "HOST=MOUNT[:ro|rw]". -EINVAL with the reason when that may not be opened. */
int cli_dirs_add(struct cli_dirs *d, enum cli_dir_kind kind, const char *spec,
		 struct diag *diag) MUST_USE;
/* Add the current directory at /workspace. */
int cli_dirs_add_cwd(struct cli_dirs *d, enum cli_dir_kind kind, struct diag *diag) MUST_USE;
/* -EINVAL when a bind would hide an overlay. */
int cli_dirs_check(const struct cli_dirs *binds, const struct cli_dirs *overlays,
		   struct diag *diag) MUST_USE;

/* ---- image.c ---- */

/* "gzip", "zstd", "none" */
bool cli_pack_ok(const char *how);

/* ---- limits.c ---- */

struct cli_limits {
	struct run_limits run;
	uint64_t disk; /* bytes that may become new to the store; 0: as it is */
};
/* Words of NAME=VALUE; what is not named is 0, the default. */
int cli_limits_parse(const struct cli_list *words, struct cli_limits *ret,
		     struct diag *diag) MUST_USE;

/* ---- which tree a command sees (view.c): the options that run and serve share ---- */

struct cli_net_opts {
	struct cli_list allow, deny;
	bool local;
};
/* The settings' rules and those of the command line, into @ret, which is zero and released by the caller. */
int cli_net_rules(const struct cli_net_opts *o, const struct cli_config *c, struct diag *diag,
		  struct net_rules *ret) MUST_USE;

/* Before a command that gets @rules (NULL: none): what they allow in vain. */
void cli_net_tell_shut(const struct net_rules *rules);

struct cli_view_opts {
	struct cli_net_opts net;
	const char *env, *base;
	struct cli_list binds, binds_ro, overlays, writable, limits;
	bool bind_cwd, overlay_cwd, no_exec;
};
void cli_view_opts_release(struct cli_view_opts *o);

/* Rows of a command's table of options, into the struct cli_view_opts @o. */
#define CLI_VIEW_OPTS(o)                                                                                                              \
	{"env",                                                                                                                       \
	 'e',                                                                                                                         \
	 CLI_TEXT,                                                                                                                    \
	 &(o).env,                                                                                                                    \
	 "NAME",                                                                                                                      \
	 "environment; default: this directory's with --overlay-cwd or --bind-cwd, else 'default'"},                                  \
		{"base",    0,      CLI_TEXT,                                                                                         \
		 &(o).base, "NAME", "what a new environment starts from; default: host"},                                             \
		{"overlay-cwd",    0,    CLI_FLAG,                                                                                    \
		 &(o).overlay_cwd, NULL, "this directory at /workspace, copy-on-write"},                                              \
		{"bind-cwd",    0,    CLI_FLAG,                                                                                       \
		 &(o).bind_cwd, NULL, "this directory at /workspace, written through"},                                               \
		{"overlay",    0,                                                                                                     \
		 CLI_LIST,     &(o).overlays,                                                                                         \
		 "HOST=MOUNT", "another directory, copy-on-write"},                                                                   \
		{"bind",                                                                                                              \
		 0,                                                                                                                   \
		 CLI_LIST,                                                                                                            \
		 &(o).binds,                                                                                                          \
		 "HOST=MOUNT[:ro|rw]",                                                                                                \
		 "another directory, written through"},                                                                               \
		{"bind-ro",    0,                                                                                                     \
		 CLI_LIST,     &(o).binds_ro,                                                                                         \
		 "HOST=MOUNT", "another directory, read-only"},                                                                       \
		{"writable-root", 0,      CLI_LIST,                                                                                   \
		 &(o).writable,   "PATH", "open more of the view for writing; / is all"},                                             \
		{"limit",                                                                                                             \
		 0,                                                                                                                   \
		 CLI_LIST,                                                                                                            \
		 &(o).limits,                                                                                                         \
		 "NAME=VALUE",                                                                                                        \
		 "cpu, memory, processes, files, file-size or output of a command at most; disk of the environment, which keeps it"}, \
		{"allow-domain",                                                                                                      \
		 0,                                                                                                                   \
		 CLI_LIST,                                                                                                            \
		 &(o).net.allow,                                                                                                      \
		 "DOMAIN",                                                                                                            \
		 "a network with rules: example.com, *.example.com (below it) or **.example.com (both)"},                             \
		{"deny-domain", 0,        CLI_LIST,                                                                                   \
		 &(o).net.deny, "DOMAIN", "refused, whatever is allowed"},                                                            \
		{"allow-local-binding",                                                                                               \
		 0,                                                                                                                   \
		 CLI_FLAG,                                                                                                            \
		 &(o).net.local,                                                                                                      \
		 NULL,                                                                                                                \
		 "this machine's loopback, too, where a domain allows it"},                                                           \
	{                                                                                                                             \
		"no-exec-workspace", 0, CLI_FLAG, &(o).no_exec, NULL,                                                                 \
			"nothing in writable places can be executed"                                                                  \
	}

struct cli_view {
	struct cli_config config;
	struct cli_dirs binds, overlays;
	struct ctl_overlay *ov; /* of overlays, which own the strings */
	const char **writable;  /* NULL-terminated, or NULL; the strings are the options' */
	char name[CLI_ENV_MAX]; /* of the current directory's environment, or "" */
	const char *env;        /* the options' or @name; NULL: the default */
	bool by_place;          /* it is @name: what it was made for is that directory */
	struct cli_limits limits;
	struct net_rules net; /* the command line's and the settings' */
	bool net_on;          /* it opens a network: a domain was allowed on the command line */
	/* Set before: when a directory cannot be shown, this says why and what to do, and nothing is shown. NULL: an error. */
	struct diag *refused;
};
void cli_view_release(struct cli_view *v);
#define cleanup_view __attribute__((cleanup(cli_view_release)))
/* @v is zero but for refused, and released by the caller also after an error. */
int cli_view(const struct cli_view_opts *o, struct cli_view *v, struct diag *diag) MUST_USE;

/* ---- role sessions (session.c) ---- */

/* Where their records are; owned by the caller. */
int cli_session_dir(char **ret) MUST_USE;
/* Blocks what cli_session_wait waits for: before the session is started, so that none is lost. */
void cli_session_signals(sigset_t *ret);
/* Until the session, whose bwrap is our child @pid, has ended: an exit code. */
int cli_session_wait(pid_t pid, const char *name);

/* ---- diff.c ---- */

/* What differs between two revisions, as rattan diff shows it; an exit code. */
struct cli_diff_opts {
	bool stat, names, json, raw, no_pager;
};
/* Rows of a command's table of options. */
#define CLI_DIFF_OPTS(o)                                                                        \
	{"name-status", 0, CLI_FLAG, &(o).names, NULL, "only the kind of change and the path"}, \
		{"stat", 0, CLI_FLAG, &(o).stat, NULL, "only how much"},                        \
		{"json", 0, CLI_FLAG, &(o).json, NULL, "the list of changes as JSON"},          \
		{"null", 'z', CLI_FLAG, &(o).raw, NULL, "names as they are, a NUL after each"}, \
	{                                                                                       \
		"no-pager", 0, CLI_FLAG, &(o).no_pager, NULL, "all at once, also on a terminal" \
	}
/* -1, or an exit code when @o contradicts itself; before anything is asked. @name: the command's. */
int cli_diff_check(const struct cli_diff_opts *o, const char *name) MUST_USE;
/* Is it a path, and no revision? What has a slash is, and "." and "..". */
bool cli_diff_path(const char *word);
/* By the page, what is at or below PATH @path (cli/place.h; NULL: all); @head prints what stands before, where that is not for a
 * program. @a NULL: head, @b NULL: the working tree. @name: the command's. */
int cli_diff_between(struct ctl *ctl, const char *a, const char *b, const char *path,
		     const struct cli_diff_opts *o, const char *name, void (*head)(void *arg),
		     void *arg);

/* ---- commands ---- */

extern const struct cli_command cmd_serve, cmd_run, cmd_status, cmd_log, cmd_diff, cmd_commit,
	cmd_rollback, cmd_reset, cmd_undo, cmd_fork, cmd_mount, cmd_umount, cmd_env, cmd_fsck,
	cmd_gc, cmd_stats, cmd_probe, cmd_session, cmd_tag, cmd_import, cmd_export, cmd_push,
	cmd_pull, cmd_base, cmd_apply, cmd_unapply, cmd_ls, cmd_cat, cmd_show, cmd_shell,
	cmd_bootstrap;
