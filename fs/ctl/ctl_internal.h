/* fs/ctl/ctl_internal.h - shared by the files of ctl_client; nobody else includes it. */
#pragma once

#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_io.h"
#include "fs/ctl/ctl_msg.h"

struct ctl {
	int sock;
	uint64_t last_id;
	bool through;  /* of ctl_env_opts */
	char *place;   /* the environment's runtime directory */
	struct buf in; /* the last message */
	int fds[IO_MAX_FDS];
	size_t nfds;               /* descriptors that came with it, not taken yet */
	int (*waiting)(void *arg); /* see ctl_on_wait */
	void *waiting_arg;
	/* of every attachment that says nothing else; see ctl_env_opts */
	char **writable;
	struct ctl_bytes policy;
	uint64_t disk;  /* 0: none */
	char note[512]; /* see ctl_opened_note */
	bool made;
};

/* ctl_conn.c. A request whose answer is one message, with one item of @t when @t is given. */
int ctl_call(struct ctl *c, struct ctl_req *rq, int fd, struct diag *diag,
	     const struct ctl_table *t, void *item) MUST_USE;
/* A request whose answer is a stream of items. After @fn stopped, the rest is read and dropped, so
 * that the connection stays usable. */
int ctl_stream(struct ctl *c, struct ctl_req *rq, struct diag *diag, const struct ctl_table *t,
	       void *item, int (*fn)(void *arg, void *item), void *arg) MUST_USE;

/* The real path of the data directory, made when @make. NULL @data_dir: ctl_data_dir(). */
int ctl_data_path(const char *data_dir, bool make, struct diag *diag, char **ret) MUST_USE;
/* The runtime directory of an environment; made when missing. @data: from ctl_data_path. */
int ctl_place(const char *data, const char *env, struct diag *diag, char **ret) MUST_USE;
/* The same for a commit that is mounted at @dir. */
int ctl_place_mount(const char *dir, struct diag *diag, char **ret) MUST_USE;
/* Take away the mounts of commits whose server is dead. */
void ctl_heal_mounts(void);
/* Held until the descriptor is closed: only one client starts or removes at a time. */
int ctl_place_lock(const char *place, struct diag *diag, int *ret_fd) MUST_USE;
/* Does a rattan-fs live there? */
bool ctl_place_alive(const char *place);
/* Wait until it does not; -ETIMEDOUT. */
int ctl_place_wait_gone(const char *place, unsigned timeout_ms) MUST_USE;
/* Tell the server of a commit that is mounted on the host that it is not any more, and wait for its end. -ETIMEDOUT: it does not end,
 * or it is mounted in another namespace, which is its own. */
int ctl_place_end_mount(const char *place) MUST_USE;
/* What a dead one left behind is removed; true when there was something. */
bool ctl_place_heal(const char *place);
/* All of it, with the lock held; not while it lives. */
void ctl_place_remove(const char *place);

/* Run rattan-fs with @argv (argv[0] is filled in, "--ready-fd N" is appended) and wait for its
 * answer in @ret; its errors go to @log (may be NULL). The answer's error is the result. */
#define CTL_ARGV_MAX 256
struct ctl_argv {
	const char *v[CTL_ARGV_MAX + 8];
	size_t n;
	bool std_in, std_out; /* it has this process's, instead of nothing */
	int in_fd;            /* not 0: this instead, lent */
	/* Of a stream; NULL, or every CTL_TICK_MS in which nothing comes; nonzero ends it. */
	int (*idle)(void *arg);
	void *idle_arg;
	bool ended_well; /* set by it: it ended with 0, which counts also when it was told to stop and its last word was not heard */
};
#define CTL_TICK_MS 200
/* Until there is something to read from @fd, or its end; nonzero is @idle's, which may be NULL: it is not waited. */
int ctl_await(int fd, int (*idle)(void *arg), void *arg) MUST_USE;
void ctl_argv_add(struct ctl_argv *a, const char *s);
void ctl_argv_opt(struct ctl_argv *a, const char *opt, const char *value);
int ctl_spawn(struct ctl_argv *a, const char *log, struct diag *diag, struct buf *raw,
	      struct ctl_rep_doc *ret) MUST_USE;
/* The same for one that answers with a stream of messages (fs/env/daemon_fsck.c); nonzero of @fn ends it. */
int ctl_spawn_stream(struct ctl_argv *a, struct diag *diag,
		     int (*fn)(void *arg, const struct ctl_rep_doc *rep), void *arg) MUST_USE;
/* Begin @a for the work @what on a store that is there; *ret_data is the caller's and outlives @a. */
int ctl_admin_argv(struct ctl_argv *a, const char *what, const char *data_dir, struct diag *diag,
		   char **ret_data) MUST_USE;
/* The same, of a data directory that is made when it is missing. */
int ctl_admin_argv_make(struct ctl_argv *a, const char *what, const char *data_dir,
			struct diag *diag, char **ret_data) MUST_USE;
/* What "admin @what" lists: 1 with @ret, whose bytes are @raw's; 0 where there is no store. */
int ctl_admin_list(const char *what, const char *data_dir, struct diag *diag, char **ret_data,
		   struct buf *raw, struct ctl_rep_doc *ret) MUST_USE;
/* A message of such a stream that holds a struct ctl_progress, to @fn (may be NULL). */
int ctl_stream_progress(const msgpack_object *item,
			int (*fn)(void *arg, const char *stage, uint64_t done, uint64_t total),
			void *arg) MUST_USE;
