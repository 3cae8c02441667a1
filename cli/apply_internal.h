/*
 * cli/apply_internal.h - shared by the files of `rattan apply`.
 */
#pragma once

#include "apply/apply.h"
#include "base/buf.h"
#include "cli/cli.h"
#include "policy/glob.h"

/* One host directory of the environment, with its changes. */
struct apply_dir {
	char *host, *mount; /* owned */
	struct apply_change *v;
	size_t n, cap;
	bool applied; /* something of it was */
	bool looked;
	struct apply_looked look; /* of --patch: what is asked about, and done */
};
struct apply_args {
	const char *env, *profile;
	bool dry_run, force, patch, json, list;
	char **paths;
	int npaths;
};

struct apply_closed {
	const struct apply_dir *dir;
	char *place, *path, *reason; /* owned; @path: of the first change */
	uint64_t n;
};

struct applying {
	const struct apply_args *a;
	struct client *client;
	struct ctl *ctl;
	struct client_tree tree;
	bool attached;
	struct apply_dir *v;
	size_t n;
	char **elsewhere; /* of the tree, owned; paths as well */
	size_t nelsewhere, elsewhere_cap;
	struct policy *policy;
	char *data_dir;
	bool asked;    /* somebody was, about something */
	uint64_t last; /* the latest run before the changes were listed */
	/* of what is under way */
	const struct apply_dir *dir;
	struct cli_bar bar;
	sigset_t stops;
	long long began;
	cJSON *json;
	struct apply_closed *closed; /* what the policy keeps, by place */
	size_t nclosed;
	char *git; /* owned: where the tree has the first repository whose data is among it; NULL: none */
	struct buf back, stays; /* of unapply: directories, each with its end */
};

void apply_dir_release(struct apply_dir *d);
void applying_release(struct applying *x);
#define cleanup_applying __attribute__((cleanup(applying_release)))

/* ---- apply_tell.c ---- */
/* For struct apply_calls; @x is the argument. */
void apply_line(void *x, const struct apply_line *l);
int apply_progress(void *x, const char *stage, uint64_t done, uint64_t total);
/* What of it differs, in brackets, when it is not only the bytes. */
const char *apply_what_text(uint32_t what, char kind, char ret[static 64]);
/* In the JSON list: what is to be applied is, from line @from on. */
void apply_json_done(struct applying *x, int from);
/* What apply_line() was told of places that the policy closes, and has counted so far. */
void apply_tell_closed(struct applying *x);
/* Signals that end a program are held from here on, and looked for by apply_progress. */
void apply_begin(struct applying *x, sigset_t *ret_old);

/* ---- apply_load.c: exit codes, or -1 ---- */
int apply_load_dirs(struct applying *x);
int apply_load_changes(struct applying *x);

/* ---- apply_pick.c: which changes are meant ---- */

/* Marks those that one of @paths names (all when there is none) in all of @d. An exit code, or -1. */
int apply_pick(struct apply_dir *d, size_t n, char *const *paths, int npaths);

/* ---- apply_ask.c: one change after another, hunk by hunk ---- */

/* Asks about what would be done of @d->look, and leaves chosen there what is to be. @tree: its directory there. *ret_asked becomes true
 * when there was a question. An exit code, or -1. */
int apply_ask(struct apply_dir *d, int tree, bool *ret_asked);
