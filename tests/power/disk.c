/* See disk.h. */
#include "tests/power/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512u
#define PAGE   4096u

/* A file: what is surely there, and what was done since. */
struct file {
	uint64_t ino;
	uint8_t *base;
	size_t size, cap;
	size_t *ops; /* events */
	size_t nops, ops_cap;
	struct written {
		uint64_t off, len;
		size_t at; /* event */
	} * written;       /* ranges that are durable up to an event */
	size_t nwritten;
};

/* An event in a directory. */
struct entry {
	size_t at; /* event */
	enum power_type type;
	char *dir, *name, *to; /* name and to relative to the root */
	struct file *file;     /* POWER_OPEN */
	bool durable;
};

/* A sync under way. */
struct sync {
	uint64_t id;
	size_t began;
};

struct disk {
	uint8_t *log;
	size_t *events; /* offsets */
	size_t n, at;
	struct file **files;
	size_t nfiles;
	struct entry *entries;
	size_t nentries;
	struct sync syncs[64];
	char told[200];
};

static void *more(void *p, size_t n, size_t size)
{
	/* every power of two */
	if (n & (n - 1))
		return p;
	p = realloc(p, (n ? 2 * n : 1) * size);
	if (!p)
		abort();
	return p;
}

/* ---- the log ---- */

/* Records stand unaligned in the file: they are laid out anew. */
static int load(struct disk *d, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *raw;
	size_t from = 0, to = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	raw = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	(void)close(fd);
	if (raw == MAP_FAILED)
		return -1;
	d->log = malloc((size_t)st.st_size / sizeof(struct power_rec) * 8 + (size_t)st.st_size);
	while (d->log && from + sizeof(struct power_rec) <= (size_t)st.st_size) {
		struct power_rec r;
		size_t len;

		memcpy(&r, raw + from, sizeof(r));
		len = sizeof(r) + r.len;
		if (r.magic != POWER_MAGIC || len > (size_t)st.st_size - from)
			break;
		memcpy(d->log + to, raw + from, len);
		d->events = more(d->events, d->n, sizeof(*d->events));
		d->events[d->n++] = to;
		from += len;
		to += (len + 7) & ~(size_t)7;
	}
	(void)munmap(raw, (size_t)st.st_size);
	return d->log && from == (size_t)st.st_size ? 0 : -1;
}

struct disk *disk_new(const char *log)
{
	struct disk *d = calloc(1, sizeof(*d));

	if (d && load(d, log) == 0)
		return d;
	if (d)
		disk_free(d);
	return NULL;
}

static void file_free(struct file *f)
{
	free(f->base);
	free(f->ops);
	free(f->written);
	free(f);
}

void disk_free(struct disk *d)
{
	for (size_t i = 0; i < d->nfiles; i++)
		file_free(d->files[i]);
	for (size_t i = 0; i < d->nentries; i++) {
		free(d->entries[i].dir);
		free(d->entries[i].name);
		free(d->entries[i].to);
	}
	free(d->files);
	free(d->entries);
	free(d->events);
	free(d->log);
	free(d);
}

size_t disk_events(const struct disk *d)
{
	return d->n;
}

size_t disk_at(const struct disk *d)
{
	return d->at;
}

const struct power_rec *disk_event(const struct disk *d, size_t i)
{
	return (const void *)(d->log + d->events[i]);
}

const char *disk_told(const struct disk *d)
{
	return d->told;
}

/* ---- files ---- */

static struct file *file_find(struct disk *d, uint64_t ino)
{
	for (size_t i = d->nfiles; i-- > 0;)
		if (d->files[i]->ino == ino)
			return d->files[i];
	return NULL;
}

static struct file *file_add(struct disk *d, uint64_t ino)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->ino = ino;
	d->files = more(d->files, d->nfiles, sizeof(struct file *));
	d->files[d->nfiles++] = f;
	return f;
}

static void room(struct file *f, size_t n)
{
	if (n <= f->cap)
		return;
	n = n + n / 2;
	f->base = realloc(f->base, n);
	if (!f->base)
		abort();
	memset(f->base + f->cap, 0, n - f->cap);
	f->cap = n;
}

static void resize(struct file *f, size_t n)
{
	room(f, n);
	if (n < f->size)
		memset(f->base + n, 0, f->size - n);
	f->size = n;
}

/* An event is in the file for good. */
static void fold(struct file *f, const struct power_rec *r)
{
	size_t end = r->off + r->len;

	if (r->type == POWER_SIZE) {
		resize(f, r->off);
		return;
	}
	if (r->type == POWER_PUNCH) {
		if (r->off < f->size)
			memset(f->base + r->off, 0,
			       r->arg < f->size - r->off ? r->arg : f->size - r->off);
		return;
	}
	if (end > f->size)
		resize(f, end);
	memcpy(f->base + r->off, disk_payload(r), r->len);
}

/* All that came before event @at is durable. */
static void file_synced(struct disk *d, struct file *f, size_t at)
{
	size_t k = 0, w = 0;

	while (k < f->nops && f->ops[k] < at)
		fold(f, disk_event(d, f->ops[k++]));
	if (k) /* else there may be no array at all */
		memmove(f->ops, f->ops + k, (f->nops - k) * sizeof(*f->ops));
	f->nops -= k;
	for (size_t i = 0; i < f->nwritten; i++)
		if (f->written[i].at >= at)
			f->written[w++] = f->written[i];
	f->nwritten = w;
}

static void file_op(struct file *f, size_t at)
{
	if (f->nops == f->ops_cap) {
		f->ops_cap = f->ops_cap ? 2 * f->ops_cap : 64;
		f->ops = realloc(f->ops, f->ops_cap * sizeof(*f->ops));
		if (!f->ops)
			abort();
	}
	f->ops[f->nops++] = at;
}

/* A range of a descriptor that syncs every write: the newest write to it counts. */
static void file_written(struct disk *d, struct file *f, const struct power_rec *r)
{
	for (size_t i = f->nops; i-- > 0;) {
		const struct power_rec *w = disk_event(d, f->ops[i]);

		if (w->type != POWER_WRITE || w->off != r->off || w->len != r->arg)
			continue;
		f->written = realloc(f->written, (f->nwritten + 1) * sizeof(*f->written));
		if (!f->written)
			abort();
		f->written[f->nwritten++] = (struct written){r->off, r->arg, f->ops[i]};
		return;
	}
}

/* ---- names ---- */

static char *dir_of(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? strndup(name, (size_t)(slash - name)) : strdup("");
}

static struct file *named(struct disk *d, const char *name)
{
	struct file *f = NULL;

	for (size_t i = 0; i < d->nentries; i++) {
		struct entry *e = &d->entries[i];

		if (e->type == POWER_OPEN && !strcmp(e->name, name))
			f = e->file;
		else if (e->type == POWER_UNLINK && !strcmp(e->name, name))
			f = NULL;
		else if (e->type == POWER_RENAME && !strcmp(e->to, name))
			f = e->file;
		else if (e->type == POWER_RENAME && !strcmp(e->name, name))
			f = NULL;
	}
	return f;
}

static struct entry *entry_add(struct disk *d, enum power_type type, const char *name)
{
	struct entry *e;

	d->entries = more(d->entries, d->nentries, sizeof(*d->entries));
	e = &d->entries[d->nentries++];
	*e = (struct entry){.at = d->at, .type = type, .dir = dir_of(name), .name = strdup(name)};
	if (!e->dir || !e->name)
		abort();
	return e;
}

static void step_open(struct disk *d, const struct power_rec *r)
{
	char *name = strndup(disk_payload(r), r->len);

	if (!name)
		abort();
	if (!named(d, name)) {
		struct file *f = file_add(d, r->ino);
		struct entry *e = entry_add(d, POWER_OPEN, name);

		e->file = f;
	}
	free(name);
}

static void step_rename(struct disk *d, const struct power_rec *r)
{
	const char *from = disk_payload(r), *to = from + strlen(from) + 1;
	struct file *f = named(d, from);
	struct entry *e = entry_add(d, POWER_RENAME, from);

	e->to = strndup(to, r->len - strlen(from) - 1);
	e->file = f;
	if (!e->to)
		abort();
}

static void dir_synced(struct disk *d, const char *name, size_t n, size_t at)
{
	for (size_t i = 0; i < d->nentries; i++) {
		struct entry *e = &d->entries[i];

		if (e->at < at && strlen(e->dir) == n && !memcmp(e->dir, name, n))
			e->durable = true;
	}
}

/* ---- along the log ---- */

static void sync_begin(struct disk *d, uint64_t id)
{
	for (size_t i = 0; i < 64; i++) {
		if (d->syncs[i].began)
			continue;
		d->syncs[i] = (struct sync){id, d->at + 1};
		return;
	}
	abort();
}

static size_t sync_end(struct disk *d, uint64_t id)
{
	for (size_t i = 0; i < 64; i++) {
		size_t began = d->syncs[i].began;

		if (!began || d->syncs[i].id != id)
			continue;
		d->syncs[i].began = 0;
		return began - 1;
	}
	return 0; /* its beginning was not seen: it promises nothing */
}

void disk_step(struct disk *d)
{
	const struct power_rec *r = disk_event(d, d->at);
	struct file *f = file_find(d, r->ino);
	char *name;

	switch ((enum power_type)r->type) {
	case POWER_OPEN:
		step_open(d, r);
		break;
	case POWER_WRITE:
	case POWER_SIZE:
	case POWER_PUNCH:
		if (f)
			file_op(f, d->at);
		break;
	case POWER_WRITTEN:
		if (f)
			file_written(d, f, r);
		break;
	case POWER_SYNC:
	case POWER_DIRSYNC:
		sync_begin(d, r->arg);
		break;
	case POWER_SYNCED:
		if (f)
			file_synced(d, f, sync_end(d, r->arg));
		break;
	case POWER_DIRSYNCED:
		dir_synced(d, disk_payload(r), r->len, sync_end(d, r->arg));
		break;
	case POWER_MKDIR:
	case POWER_UNLINK:
		name = strndup(disk_payload(r), r->len);
		if (!name)
			abort();
		(void)entry_add(d, r->type, name);
		free(name);
		break;
	case POWER_RENAME:
		step_rename(d, r);
		break;
	case POWER_NOTE:
		break;
	}
	d->at++;
}

/* ---- one outcome ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t v = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) + UINT64_C(0x9e3779b97f4a7c15);

	v ^= v >> 30;
	v *= UINT64_C(0xbf58476d1ce4e5b9);
	v ^= v >> 27;
	v *= UINT64_C(0x94d049bb133111eb);
	return v ^ v >> 31;
}

enum mode {
	NOTHING, /* nothing that was not synced */
	ALL,     /* everything: a kill, not a power loss */
	PAGES,   /* each page whole or not at all */
	SECTORS, /* each sector */
	MOMENTS, /* each page as it was at some moment */
	NEWEST,  /* the newest writes, of the older ones half */
	MODES
};
static const char *const mode_names[MODES] = {"nothing", "all",     "pages",
					      "sectors", "moments", "newest"};

struct outcome {
	const struct disk *d;
	const struct file *f;
	uint64_t seed;
	enum mode mode;
};

/* Up to which event (exclusive) sector @s shows what was written. */
static size_t cutoff(const struct outcome *o, uint64_t s)
{
	size_t now = o->d->at, from = o->f->ops[0];
	uint64_t unit = o->mode == SECTORS ? s : s / (PAGE / SECTOR);
	uint64_t h = mix(o->seed ^ o->f->ino, unit);
	size_t at = now;

	switch (o->mode) {
	case NOTHING:
		at = 0;
		break;
	case PAGES:
	case SECTORS:
		at = h & 1 ? now : 0;
		break;
	case MOMENTS:
		at = from + h % (now - from + 1);
		break;
	case NEWEST:
		at = h % 8 ? now : from + (h >> 8) % (now - from + 1);
		break;
	case ALL:
	case MODES:
		break;
	}
	for (size_t i = 0; i < o->f->nwritten; i++) {
		const struct written *w = &o->f->written[i];

		if (w->off < (s + 1) * SECTOR && w->off + w->len > s * SECTOR && at <= w->at)
			at = w->at + 1;
	}
	return at;
}

static void apply_sector(uint8_t *img, size_t cap, const struct power_rec *r, uint64_t s)
{
	uint64_t a = s * SECTOR, b = a + SECTOR;

	if (a < r->off)
		a = r->off;
	if (b > r->off + r->len)
		b = r->off + r->len;
	if (b > cap)
		b = cap;
	if (a < b)
		memcpy(img + a, disk_payload(r) + (a - r->off), b - a);
}

/* What lay behind a new end of the file, or in a hole. */
static void zero_sector(uint8_t *img, uint64_t from, uint64_t end, uint64_t s)
{
	uint64_t a = s * SECTOR < from ? from : s * SECTOR, b = (s + 1) * SECTOR;

	if (b > end)
		b = end;
	if (a < b)
		memset(img + a, 0, b - a);
}

/* The size at the end of event @i, from the one before it. */
static uint64_t grown(const struct power_rec *r, uint64_t size)
{
	if (r->type == POWER_SIZE)
		return r->off;
	if (r->type == POWER_PUNCH)
		return size;
	return r->off + r->len > size ? r->off + r->len : size;
}

static uint64_t choose_size(const struct outcome *o)
{
	const struct file *f = o->f;
	uint64_t size = f->size, least = f->size;
	size_t stop = f->nops;

	for (size_t i = 0; i < f->nwritten; i++)
		if (f->written[i].off + f->written[i].len > least)
			least = f->written[i].off + f->written[i].len;
	if (o->mode == NOTHING)
		stop = 0;
	else if (o->mode != ALL && mix(o->seed, f->ino + 1) % 3 == 0)
		stop = mix(o->seed, f->ino + 2) % (f->nops + 1);
	for (size_t i = 0; i < stop; i++)
		size = grown(disk_event(o->d, f->ops[i]), size);
	return size < least ? least : size;
}

static uint64_t touched_until(const struct power_rec *r, uint64_t size)
{
	uint64_t end = r->type == POWER_WRITE   ? r->off + r->len
		       : r->type == POWER_PUNCH ? r->off + r->arg
						: size;

	return end < size ? end : size;
}

static int put_file(const struct outcome *o, const char *path)
{
	const struct file *f = o->f;
	uint64_t size = choose_size(o);
	uint8_t *img = malloc(size ? size : 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), r = -1;
	size_t had = f->size < size ? f->size : size;
	bool noise = mix(o->seed, 77) & 1;

	if (!img || fd < 0)
		goto out;
	if (had)
		memcpy(img, f->base, had);
	for (uint64_t i = had; i < size; i++)
		img[i] = noise && o->mode != ALL ? (uint8_t)mix(o->seed, i / 64) : 0;
	for (size_t i = 0; i < f->nops; i++) {
		const struct power_rec *w = disk_event(o->d, f->ops[i]);
		uint64_t end = touched_until(w, size);

		for (uint64_t s = w->off / SECTOR; s * SECTOR < end; s++) {
			if (f->ops[i] >= cutoff(o, s))
				continue;
			if (w->type != POWER_WRITE)
				zero_sector(img, w->off, end, s);
			else
				apply_sector(img, size, w, s);
		}
	}
	for (size_t done = 0; done < size;) {
		ssize_t k = write(fd, img + done, size - done);

		if (k < 0)
			goto out;
		done += (size_t)k;
	}
	r = 0;
out:
	free(img);
	if (fd >= 0)
		(void)close(fd);
	return r;
}

/* LMDB's lock file is written through a map: after a restart anything may be in it. */
static int put_lock(uint64_t seed, const char *path)
{
	uint8_t junk[8192];
	size_t n = seed % 3 == 0 ? 0 : seed % 3 == 1 ? sizeof(junk) : seed / 3 % sizeof(junk);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t k;

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		junk[i] = (uint8_t)mix(seed, i);
	k = write(fd, junk, n);
	(void)close(fd);
	return k == (ssize_t)n ? 0 : -1;
}

/* Is the event of @e on the disk? Those of one directory are, up to some one of them. */
static bool kept(const struct disk *d, const struct entry *e, uint64_t seed, enum mode mode)
{
	uint64_t h;

	if (e->durable || mode == ALL)
		return true;
	if (mode == NOTHING)
		return false;
	h = mix(seed, 99);
	for (const char *p = e->dir; *p; p++)
		h = mix(h, (uint8_t)*p);
	return h % 2 ? true : e->at < h / 2 % (d->at + 1);
}

static int put_name(const struct disk *d, const struct entry *e, const char *dir, uint64_t seed,
		    enum mode mode)
{
	char path[PATH_MAX], to[PATH_MAX];
	struct outcome o = {d, e->file, seed, mode};
	size_t n = strlen(e->name);
	int r = 0;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, e->name);
	(void)snprintf(to, sizeof(to), "%s/%s", dir, e->to ? e->to : "");
	if (e->type == POWER_MKDIR)
		r = mkdir(path, 0700);
	else if (e->type == POWER_RENAME)
		r = rename(path, to);
	else if (e->type == POWER_UNLINK)
		r = unlink(path);
	else if (n > 9 && !strcmp(e->name + n - 9, "/lock.mdb"))
		r = put_lock(mix(seed, n), path);
	else
		r = put_file(&o, path);
	/* what lies below a directory that is not there is not there either */
	return r < 0 && (errno == ENOENT || errno == EEXIST) ? 0 : r;
}

int disk_image(const struct disk *d, const char *dir, uint64_t seed)
{
	enum mode mode = (enum mode)(mix(seed, 5) % MODES);
	struct disk *told = (struct disk *)(uintptr_t)d;

	(void)snprintf(told->told, sizeof(told->told), "event %zu of %zu, seed %llu, %s", d->at,
		       d->n, (unsigned long long)seed, mode_names[mode]);
	for (size_t i = 0; i < d->nentries; i++) {
		const struct entry *e = &d->entries[i];

		if (kept(d, e, seed, mode) && put_name(d, e, dir, seed, mode) < 0)
			return -1;
	}
	return 0;
}
