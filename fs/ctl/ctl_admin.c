/* What needs the store but no running environment: a short-lived rattan-fs answers. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/mounts.h"
#include "fs/ctl/ctl_internal.h"

static void first_words(struct ctl_argv *a, const char *what, const char *data)
{
	ctl_argv_add(a, "admin");
	ctl_argv_add(a, what);
	ctl_argv_opt(a, "--data-dir", data);
}

int ctl_admin_argv(struct ctl_argv *a, const char *what, const char *data_dir, struct diag *diag,
		   char **ret_data)
{
	int r = ctl_data_path(data_dir, false, NULL, ret_data);

	if (r == -ENOENT)
		return diag_set(diag, r, "there is no store yet");
	if (r < 0)
		return diag_set(diag, r, "cannot use the data directory: %s", err_text(r));
	first_words(a, what, *ret_data);
	return 0;
}

int ctl_admin_argv_make(struct ctl_argv *a, const char *what, const char *data_dir,
			struct diag *diag, char **ret_data)
{
	int r = ctl_data_path(data_dir, true, diag, ret_data);

	if (r < 0)
		return r;
	first_words(a, what, *ret_data);
	return 0;
}

int ctl_stream_progress(const msgpack_object *item,
			int (*fn)(void *arg, const char *stage, uint64_t done, uint64_t total),
			void *arg)
{
	struct ctl_progress p;
	int r = ctl_item_get(item, &ctl_table_progress, &p);

	if (r < 0)
		return r;
	if (fn && p.stage)
		r = fn(arg, p.stage, p.done, p.total);
	ctl_item_release(&ctl_table_progress, &p);
	return r;
}

int ctl_admin_list(const char *what, const char *data_dir, struct diag *diag, char **ret_data,
		   struct buf *raw, struct ctl_rep_doc *ret)
{
	struct ctl_argv a = {.n = 1};
	int r = ctl_admin_argv(&a, what, data_dir, NULL, ret_data);

	if (r == -ENOENT) /* no store is no error, and leaves no word of one in @diag */
		return 0;
	if (r < 0)
		return diag_set(diag, r, "cannot use the data directory: %s", err_text(r));
	r = ctl_spawn(&a, NULL, diag, raw, ret);
	return r < 0 ? r : 1;
}

int ctl_env_list(const char *data_dir, struct diag *diag,
		 int (*fn)(void *arg, const struct ctl_env_info *e), void *arg)
{
	cleanup_free char *data = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_rep_doc rep;
	int r;

	ctl_heal_mounts();
	r = ctl_admin_list("list", data_dir, diag, &data, &raw, &rep);
	if (r <= 0)
		return r;
	r = 0;
	for (uint32_t i = 0; i < rep.nitems && r == 0; i++) {
		cleanup_free char *place = NULL;
		struct ctl_env_info e;

		r = ctl_item_get(&rep.items[i], &ctl_table_env, &e);
		if (r == 0)
			r = ctl_place(data, e.name, diag, &place);
		if (r < 0)
			break;
		e.running = ctl_place_alive(place);
		if (!e.running) {
			cleanup_fd int lock = -1;

			/* Under the lock: somebody may be starting one just now. */
			r = ctl_place_lock(place, diag, &lock);
			if (r < 0)
				break;
			e.stale = ctl_place_heal(place);
			e.running = ctl_place_alive(place);
		}
		r = fn(arg, &e);
	}
	ctl_rep_release(&rep);
	return r;
}

/* What a daemon still holds in memory counts as well when it is said whether anything is uncommitted. */
static void flush_running(const char *data, const char *env)
{
	struct ctl_env_opts o = {.data_dir = data, .env = env, .no_start = true};
	cleanup_ctl struct ctl *c = NULL;

	if (ctl_open(&o, NULL, &c) == 0)
		(void)!ctl_flush(c, NULL);
}

int ctl_env_fork(const char *data_dir, const char *env, const char *rev, const char *name,
		 struct diag *diag, struct ctl_env_info ret[static 2])
{
	cleanup_free char *data = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_argv a = {.n = 1};
	struct ctl_rep_doc rep;
	int r = ctl_admin_argv(&a, "fork", data_dir, diag, &data);

	if (r < 0)
		return r;
	flush_running(data, env);
	ctl_argv_opt(&a, "--env", env);
	ctl_argv_opt(&a, "--rev", rev ? rev : "head");
	ctl_argv_opt(&a, "--name", name);
	r = ctl_spawn(&a, NULL, diag, &raw, &rep);
	if (r < 0)
		return r;
	r = rep.nitems == 2 ? 0 : -EBADMSG;
	for (uint32_t i = 0; i < 2 && r == 0; i++)
		r = ctl_item_get(&rep.items[i], &ctl_table_env, &ret[i]);
	ctl_rep_release(&rep);
	return r;
}

static int end_daemon(const char *data, const char *env, bool force, struct diag *diag)
{
	struct ctl_env_opts o = {.data_dir = data, .env = env, .no_start = true};
	cleanup_ctl struct ctl *c = NULL;
	int r = ctl_open(&o, NULL, &c);

	if (r == -ECONNREFUSED || r == -ENOENT)
		return 0;
	if (r < 0)
		return diag_set(diag, r, "cannot reach the daemon of \"%s\": %s", env, err_text(r));
	return ctl_shutdown(c, force, diag);
}

int ctl_env_remove(const char *data_dir, const char *env, bool force, struct diag *diag)
{
	cleanup_free char *data = NULL, *place = NULL;
	cleanup_buf struct buf raw = {0};
	cleanup_fd int lock = -1;
	struct ctl_argv a = {.n = 1};
	struct ctl_rep_doc rep;
	int r = ctl_data_path(data_dir, false, diag, &data);

	if (r == 0)
		r = ctl_place(data, env, diag, &place);
	if (r == 0)
		r = ctl_place_lock(place, diag, &lock);
	if (r == 0)
		r = end_daemon(data, env, force, diag);
	if (r < 0)
		return r;
	(void)ctl_place_heal(place);
	ctl_argv_add(&a, "admin");
	ctl_argv_add(&a, "remove");
	ctl_argv_opt(&a, "--data-dir", data);
	ctl_argv_opt(&a, "--env", env);
	r = ctl_spawn(&a, NULL, diag, &raw, &rep);
	if (r == 0)
		ctl_rep_release(&rep);
	/* Also when there was no such environment: looking for it made the directory. */
	if (r == 0 || r == -ENOENT)
		ctl_place_remove(place);
	return r;
}

/* ---- commits as read-only mounts on the host ---- */

/* Also one whose server is stuck, or died. */
static bool is_ours(const char *dir)
{
	bool ours;

	return mounts_at(dir, &ours) == 0 && ours;
}

int ctl_mount(const char *data_dir, const char *env, const char *rev, const char *dir, bool rw,
	      struct diag *diag)
{
	cleanup_free char *data = NULL, *real = NULL, *place = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_argv a = {.n = 1};
	cleanup_fd int lock = -1;
	struct ctl_rep_doc rep;
	int r = ctl_data_path(data_dir, false, diag, &data);

	if (r < 0)
		return r;
	/* The server's current directory is "/". */
	real = realpath(dir, NULL);
	if (!real)
		return diag_set(diag, ret_nerrno(), "cannot mount at %s: %s", dir, err_text(errno));
	r = ctl_place_mount(real, diag, &place);
	if (r == 0)
		r = ctl_place_lock(place, diag, &lock);
	if (r < 0)
		return r;
	/* One that failed just now may still be ending, and who unmounts by other means tells the server nothing. */
	if (is_ours(real) && ctl_place_alive(place))
		return diag_set(diag, -EBUSY, "a commit is mounted at %s already", dir);
	if (ctl_place_end_mount(place) < 0)
		return diag_set(diag, -EBUSY,
				"what was mounted at %s still is, in another mount namespace or at "
				"another place; umount it there, end its rattan-fs, or choose "
				"another directory",
				dir);
	(void)ctl_place_heal(place);
	ctl_argv_add(&a, "mount");
	ctl_argv_opt(&a, "--run-dir", place);
	ctl_argv_opt(&a, "--data-dir", data);
	ctl_argv_opt(&a, "--env", env ? env : "default");
	ctl_argv_opt(&a, "--rev", rev);
	ctl_argv_opt(&a, "--dir", real);
	if (rw)
		ctl_argv_add(&a, "--rw");
	r = ctl_spawn(&a, NULL, diag, &raw, &rep);
	if (r == 0)
		ctl_rep_release(&rep);
	else
		ctl_place_remove(place);
	return r;
}

/* What fusermount3 says, its first line without its own name, into @ret; "" when nothing. */
static int fusermount(const char *dir, char *ret, size_t size)
{
	char *argv[] = {(char *)(uintptr_t) "fusermount3", (char *)(uintptr_t) "-u",
			(char *)(uintptr_t) "--", (char *)(uintptr_t)dir, NULL};
	static const char own[] = "fusermount3: ";
	posix_spawn_file_actions_t fa;
	cleanup_fd int rd = -1, wr = -1;
	int fds[2], status = 0, r;
	ssize_t n;
	pid_t pid;

	ret[0] = 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return ret_nerrno();
	rd = fds[0];
	wr = fds[1];
	r = posix_spawn_file_actions_init(&fa);
	if (r)
		return -r;
	r = posix_spawn_file_actions_adddup2(&fa, wr, STDERR_FILENO);
	if (!r)
		r = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&fa);
	if (r)
		return -r;
	(void)close(steal_fd(&wr));
	n = io_read_full(rd, ret, size - 1);
	ret[n > 0 ? n : 0] = 0;
	ret[strcspn(ret, "\n")] = 0;
	if (!strncmp(ret, own, sizeof(own) - 1))
		memmove(ret, ret + sizeof(own) - 1, strlen(ret) - (sizeof(own) - 1) + 1);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 0; /* the caller's program reaps its children itself */
	return status == 0 ? 0 : -EBUSY;
}

int ctl_umount(const char *dir, struct diag *diag)
{
	cleanup_free char *real = realpath(dir, NULL);
	const char *path = real ? real : dir;
	cleanup_free char *place = NULL;
	cleanup_fd int lock = -1;
	char said[256] = "";
	int r;

	if (!is_ours(path))
		return diag_set(diag, -ENOENT, "nothing of rattan's is mounted at %s", dir);
	if (geteuid() == 0)
		r = umount2(path, UMOUNT_NOFOLLOW) < 0 ? ret_nerrno() : 0;
	else
		r = fusermount(path, said, sizeof(said));
	if (r == -ENOENT && geteuid() != 0)
		return diag_set(diag, r,
				"cannot unmount %s without fusermount3: install the package fuse3",
				dir);
	if (r == -EBUSY && (!said[0] || strstr(said, "busy")))
		return diag_set(diag, r, "cannot unmount %s: %s; close what is open there", dir,
				err_text(r));
	if (r < 0 && strstr(said, "/etc/mtab") && access("/etc/mtab", F_OK) < 0)
		return diag_set(
			diag, -ENOSYS,
			"cannot unmount %s: fusermount3 needs /etc/mtab, which is not there: as "
			"root, ln -s /proc/self/mounts /etc/mtab",
			dir);
	if (r < 0)
		return diag_set(diag, r, "cannot unmount %s: %s", dir,
				said[0] ? said : err_text(r));
	/* The kernel tells its server only when no namespace has a copy of the mount any more, and each one that was made
	 * meanwhile has: an environment's keeper would keep the state from being collected for as long as it lives. A mount
	 * at the same place right afterwards must not meet the server. */
	if (ctl_place_mount(path, NULL, &place) < 0 || ctl_place_lock(place, NULL, &lock) < 0)
		return 0;
	if (ctl_place_end_mount(place) == 0)
		ctl_place_remove(place);
	return 0;
}
