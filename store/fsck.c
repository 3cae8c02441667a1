#include "store/fsck.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/fsck_internal.h"

/* Look-ups spent on saying who sees what is damaged; past that, findings name inode and layer only. */
#define BUDGET 2000000

/* ---- the data directory ---- */

static int check_format(struct fsck *f, struct diag *diag)
{
	struct diag why = {0};
	int r = store_format_check(f->dir_fd, f->dir, &why);

	if (r == -EBADMSG || r == -EPROTONOSUPPORT) {
		/* One of another version has another superblock, too: then it is not damage. */
		f->format_bad = r;
		f->format_why = why;
		return 0;
	}
	return r < 0 ? diag_set(diag, r, "%s", why.text) : 0;
}

/* After the superblock was read: is the format file wrong, or the store of another version? */
static int tell_format(struct fsck *f, struct diag *diag)
{
	if (!f->format_bad)
		return 0;
	if (f->format_bad == -EPROTONOSUPPORT && !f->have_super)
		return diag_set(diag, -EPROTONOSUPPORT, "%s", f->format_why.text);
	return fsck_tell(f, STORE_FINDING_REPAIRABLE, "format", "format", NULL, "%s",
			 f->format_why.text);
}

static int open_file(struct fsck *f, const char *path, struct pages **ret)
{
	int r = pages_open(f->dir_fd, path, ret);

	if (r == -EBADMSG || r == -ENOENT)
		return fsck_tell(f, STORE_FINDING_DAMAGE, "page", path, NULL,
				 r == -ENOENT
					 ? "%s is missing"
					 : "%s is cut short or damaged: no meta page can be read",
				 path);
	return r;
}

static int open_all(struct fsck *f, struct diag *diag)
{
	struct stat st;
	int r;

	f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->dir_fd < 0) {
		r = ret_nerrno();
		return diag_set(diag, r == -ENOTDIR ? -ENOENT : r,
				"cannot open the data directory '%s': %s", f->dir, err_text(r));
	}
	/* It is the last that a creation makes: without it, nothing was ever in there. */
	if (fstatat(f->dir_fd, "format", &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return diag_set(diag, -ENOENT, "there is no store in '%s'", f->dir);
	r = check_format(f, diag);
	if (r == 0 && !f->pin.dead)
		r = fsck_pin_start(&f->pin, f->dir, diag);
	if (r == 0)
		r = open_file(f, "meta/data.mdb", &f->meta);
	if (r == 0)
		r = open_file(f, "chunks/data.mdb", &f->chunks);
	return r;
}

/* ---- the whole ---- */

static void forget(struct fsck *f)
{
	free(f->layers);
	free(f->views);
	f->layers = NULL;
	f->views = NULL;
	f->nlayers = f->cap_layers = f->nviews = f->cap_views = 0;
}

/* Without an LMDB reader, writers could have used pages anew under our eyes. */
static int check_still(struct fsck *f, struct diag *diag)
{
	struct pages *files[2] = {f->meta, f->chunks};

	for (int i = 0; i < 2 && f->pin.dead; i++) {
		struct pages_snap s;

		if (!files[i] || pages_begin(files[i], PAGES_NEWEST, &s) < 0)
			continue;
		if (s.txn != f->txn[i])
			return diag_set(
				diag, -EAGAIN,
				"the store in '%s' is damaged, and was written to while it was "
				"looked at; end what uses it, and look again",
				f->dir);
	}
	return 0;
}

static int records(struct fsck *f, struct diag *diag)
{
	int r = fsck_structure(f);

	if (r == 0)
		r = fsck_history(f);
	if (r == 0)
		r = tell_format(f, diag);
	if (r == 0)
		r = fsck_tree(f);
	if (r == 0)
		r = fsck_journal(f);
	if (r == 0)
		r = fsck_chunk_keys(f);
	if (r == 0)
		r = fsck_nlinks(f);
	if (r == 0)
		r = fsck_counters(f);
	if (r == 0)
		r = fsck_free(f);
	return r == 0 ? check_still(f, diag) : r;
}

/* Whose chunks are damaged, by a snapshot of now: the first one is not held while chunks are read. */
static int owners(struct fsck *f)
{
	struct store_fsck_sum sum = f->sum;
	int r;

	if (f->bad_chunks.len == 0)
		return 0;
	forget(f);
	f->quiet = true;
	r = fsck_structure(f);
	if (r == 0)
		r = fsck_history(f);
	f->quiet = false;
	f->sum = sum;
	return r == 0 ? fsck_chunk_owners(f) : r;
}

static int look(struct fsck *f, struct diag *diag)
{
	int r = open_all(f, diag);

	if (r == 0)
		r = records(f, diag);
	if (r == 0)
		r = fsck_chunks(f);
	return r == 0 ? owners(f) : r;
}

static void end(struct fsck *f)
{
	pages_close(f->meta);
	pages_close(f->chunks);
	fsck_pin_end(&f->pin);
	forget(f);
	buf_release(&f->bad_chunks);
	buf_release(&f->nlinks);
	buf_release(&f->unused_chunks);
	store_chunk_check_end(f->dctx);
	if (f->dir_fd >= 0)
		(void)close(f->dir_fd);
	if (f->lock_fd >= 0)
		(void)close(f->lock_fd);
}

/* With the lock that each who has the store open shares, nobody has; and LMDB need hold no snapshot. */
static int alone(struct fsck *f, struct diag *diag)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/lock", f->dir) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	f->lock_fd = open(path, O_RDWR | O_CLOEXEC);
	if (f->lock_fd < 0)
		return errno == ENOENT ? 0 : ret_nerrno(); /* what there is, is seen next */
	if (flock(f->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return store_in_use(f->dir, diag);
	f->pin.dead = true;
	return 0;
}

/* Look, write anew what can be; @ret counts what was done. */
static int repair(const char *dir, const struct store_fsck_opts *o, struct diag *diag,
		  struct store_fsck_sum *ret)
{
	struct fsck f = {.o = o,
			 .dir = dir,
			 .dir_fd = -1,
			 .lock_fd = -1,
			 .budget = BUDGET,
			 .only_count = true};
	int r = alone(&f, diag);

	if (r == 0)
		r = look(&f, diag);
	/* Given back for as long as it takes to open the store: fsck_repair sees whether somebody wrote. */
	if (f.lock_fd >= 0)
		(void)close(f.lock_fd);
	f.lock_fd = -1;
	if (r == 0 && f.sum.repairable && !f.pages_bad)
		r = fsck_repair(&f, diag);
	*ret = f.sum;
	end(&f);
	return r;
}

int store_fsck(const char *dir, const struct store_fsck_opts *o, struct diag *diag,
	       struct store_fsck_sum *ret)
{
	struct fsck f = {.o = o, .dir = dir, .dir_fd = -1, .lock_fd = -1, .budget = BUDGET};
	struct store_fsck_sum first = {0};
	int r = 0;

	digest_prepare();
	if (o->flags & STORE_FSCK_REPAIR)
		r = repair(dir, o, diag, &first);
	if (r == 0)
		r = look(&f, diag);
	end(&f);
	*ret = f.sum;
	ret->repaired = first.repaired;
	return r < 0 ? diag_set(diag, r, "cannot check the store in '%s': %s", dir, err_text(r))
		     : r;
}
