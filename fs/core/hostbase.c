#include "fs/core/hostbase.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/mp.h"
#include "fs/core/hostbase_internal.h"

#define SHAPE_REF   "base/host-shape/" /* and the digest of what the base was made of */
#define SHAPE_HEX   32
#define SHAPE       "rattan host base 1"
#define WANT_MAX    96
#define NO_BODY     NULL
#define SYSTEM_DIRS (REC_ORIGIN_PUBLIC | REC_ORIGIN_STABLE)

/* ---- what the base holds ---- */

enum want_kind {
	WANT_DIR,
	WANT_HOST,
	WANT_LINK,
	WANT_FILE
};

struct want {
	const char *path; /* absolute; parents stand before their children */
	enum want_kind kind;
	uint32_t mode; /* permissions */
	uint32_t owner;
	const char *body; /* a file's text, a link's target */
};

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
			     "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
			     "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
			     "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
			     "man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"
			     "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
			     "user:x:1000:1000:user:/home/user:%s\n"
			     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";

static const char group[] = "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\n"
			    "disk:x:6:\nman:x:12:\nmail:x:8:\nutmp:x:43:\nstaff:x:50:\n"
			    "user:x:1000:\nnogroup:x:65534:\n";

static const char nsswitch[] = "passwd: files\ngroup: files\nshadow: files\ngshadow: files\n"
			       "hosts: files dns\nnetworks: files\nprotocols: files\n"
			       "services: files\nethers: files\nrpc: files\n";

/* The root's directories of programs and libraries: as the host has them, real or as links into /usr.
 * /nix and /gnu hold the programs of hosts whose /usr is nearly empty. */
static const char *const from_host[] = {"/usr",   "/bin",    "/sbin",   "/lib", "/lib32",
					"/lib64", "/libx32", "/libo32", "/nix", "/gnu"};

static const struct want own[] = {
	{"/home", WANT_DIR, 0755, 0, NO_BODY},
	{"/home/user", WANT_DIR, 0755, HOSTBASE_AGENT, NO_BODY},
	{"/workspace", WANT_DIR, 0755, HOSTBASE_AGENT, NO_BODY},
	{"/tmp", WANT_DIR, 01777, 0, NO_BODY},
	{"/run", WANT_DIR, 0755, 0, NO_BODY},
	{"/run/lock", WANT_DIR, 01777, 0, NO_BODY},
	{"/var", WANT_DIR, 0755, 0, NO_BODY},
	{"/var/cache", WANT_DIR, 0755, 0, NO_BODY},
	{"/var/lib", WANT_DIR, 0755, 0, NO_BODY},
	{"/var/lock", WANT_LINK, 0777, 0, "/run/lock"},
	{"/var/log", WANT_DIR, 0755, 0, NO_BODY},
	{"/var/run", WANT_LINK, 0777, 0, "/run"},
	{"/var/spool", WANT_DIR, 0755, 0, NO_BODY},
	{"/var/tmp", WANT_DIR, 01777, 0, NO_BODY},
	/* mount points */
	{"/proc", WANT_DIR, 0555, 0, NO_BODY},
	{"/dev", WANT_DIR, 0755, 0, NO_BODY},
	{"/sys", WANT_DIR, 0555, 0, NO_BODY},
	{"/mnt", WANT_DIR, 0755, 0, NO_BODY},
	{"/srv", WANT_DIR, 0755, 0, NO_BODY},
	{"/data", WANT_DIR, 0755, 0, NO_BODY},
	{"/opt", WANT_DIR, 0755, 0, NO_BODY},
	{"/root", WANT_DIR, 0700, 0, NO_BODY},
};

static const struct want own_etc[] = {
	{"/etc/group", WANT_FILE, 0644, 0, group},
	{"/etc/hostname", WANT_FILE, 0644, 0, "rattan\n"},
	{"/etc/hosts", WANT_FILE, 0644, 0, HOSTBASE_HOSTS},
	{"/etc/mtab", WANT_LINK, 0777, 0, "/proc/self/mounts"},
	{"/etc/nsswitch.conf", WANT_FILE, 0644, 0, nsswitch},
	{"/etc/resolv.conf", WANT_FILE, 0644, 0, ""},
};

/* Data of compilers and interpreters that distributions keep in /var and link to from /usr. */
static const char *const var_lib[] = {"/var/lib/gems", "/var/lib/ghc", "/var/lib/texmf"};

struct shape {
	struct want w[WANT_MAX];
	size_t n;
	char passwd[sizeof passwd + 64];
	char targets[ARRAY_SIZE(from_host)][256];
	size_t ntargets;
};

static int shape_add(struct shape *s, const struct want *w)
{
	if (s->n == WANT_MAX)
		return -E2BIG;
	s->w[s->n++] = *w;
	return 0;
}

static int add_table(struct shape *s, const struct want *w, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = shape_add(s, &w[i]);
	return r;
}

/* A directory or link of the host's, if it is there. */
static int add_host(struct shape *s, const char *path)
{
	struct want w = {.path = path, .kind = WANT_HOST};
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : ret_nerrno();
	if (S_ISLNK(st.st_mode)) {
		char *target = s->targets[s->ntargets];
		ssize_t n = readlink(path, target, sizeof s->targets[0] - 1);

		if (n < 0)
			return ret_nerrno();
		target[n] = '\0';
		s->ntargets++;
		w.kind = WANT_LINK;
		w.mode = 0777;
		w.body = target;
		return shape_add(s, &w);
	}
	w.mode = st.st_mode & 07777;
	return S_ISDIR(st.st_mode) ? shape_add(s, &w) : 0;
}

static int add_hosts(struct shape *s, const char *const *paths, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = add_host(s, paths[i]);
	return r;
}

static int shape_make(struct shape *s)
{
	struct want pw = {"/etc/passwd", WANT_FILE, 0644, 0, s->passwd};
	const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	int r;

	(void)snprintf(s->passwd, sizeof s->passwd, passwd, shell);
	r = shape_add(s, &(struct want){"/", WANT_DIR, 0755, 0, NO_BODY});
	if (r == 0)
		r = add_hosts(s, from_host, ARRAY_SIZE(from_host));
	if (r == 0)
		r = add_host(s, "/etc");
	/* a host without an /etc of its own still needs the users */
	if (r == 0 && strcmp(s->w[s->n - 1].path, "/etc") != 0)
		r = shape_add(s, &(struct want){"/etc", WANT_DIR, 0755, 0, NO_BODY});
	if (r == 0)
		r = shape_add(s, &pw);
	if (r == 0)
		r = add_table(s, own_etc, ARRAY_SIZE(own_etc));
	if (r == 0)
		r = add_table(s, own, ARRAY_SIZE(own));
	if (r == 0)
		r = add_hosts(s, var_lib, ARRAY_SIZE(var_lib));
	return r;
}

static int shape_digest(const struct shape *s, struct digest *ret)
{
	cleanup_buf struct buf b = {0};
	int r = mp_put_cstr(&b, SHAPE);

	for (size_t i = 0; r == 0 && i < s->n; i++) {
		const struct want *w = &s->w[i];

		r = mp_put_cstr(&b, w->path);
		if (r == 0)
			r = mp_put_uint(&b, (uint64_t)w->kind);
		if (r == 0)
			r = mp_put_uint(&b, w->mode);
		if (r == 0)
			r = mp_put_uint(&b, w->owner);
		if (r == 0)
			r = mp_put_cstr(&b, w->body);
	}
	return r < 0 ? r : digest_of(b.data, b.len, ret);
}

/* ---- writing it ---- */

struct timespec hostbase_now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return t;
}

void hostbase_set_times(struct rec_inode *rec, const struct timespec *t)
{
	rec->atime = rec->mtime = rec->ctime = rec->btime = *t;
}

int hostbase_set_place(struct rec_inode *rec, store_ino parent, const char *name, size_t len)
{
	rec->name = strndup(name, len);
	if (!rec->name)
		return -ENOMEM;
	rec->name_len = len;
	rec->parent = parent;
	return 0;
}

int hostbase_set_origin(struct rec_inode *rec, const char *root, const char *rel, unsigned flags)
{
	rec->origin.root = strdup(root);
	rec->origin.rel = strdup(rel);
	rec->origin.flags = flags;
	return rec->origin.root && rec->origin.rel ? 0 : -ENOMEM;
}

static int set_body(struct rec_inode *rec, const struct want *w)
{
	size_t n = strlen(w->body);

	rec->size = n;
	if (w->kind == WANT_LINK) {
		rec->target = strdup(w->body);
		return rec->target ? 0 : -ENOMEM;
	}
	if (n == 0)
		return 0;
	if (n > REC_INLINE_MAX)
		return -EFBIG;
	rec->data = malloc(n);
	if (!rec->data)
		return -ENOMEM;
	memcpy(rec->data, w->body, n);
	rec->data_len = n;
	rec->content = REC_INLINE;
	rec->blocks = 8;
	return 0;
}

static int want_record(const struct want *w, struct rec_inode *rec)
{
	static const uint32_t types[] = {[WANT_DIR] = S_IFDIR,
					 [WANT_HOST] = S_IFDIR,
					 [WANT_LINK] = S_IFLNK,
					 [WANT_FILE] = S_IFREG};
	struct stat st;

	rec->mode = types[w->kind] | w->mode;
	rec->uid = rec->gid = w->owner;
	rec->nlink = S_ISDIR(rec->mode) ? 2 : 1;
	if (w->kind != WANT_HOST)
		return w->body ? set_body(rec, w) : 0;
	if (stat(w->path, &st) < 0)
		return ret_nerrno();
	rec->nlink = (uint32_t)st.st_nlink;
	rec->atime = st.st_atim;
	rec->mtime = st.st_mtim;
	rec->ctime = rec->btime = st.st_ctim;
	rec->origin.dev = st.st_dev;
	rec->origin.ino = st.st_ino;
	return hostbase_set_origin(rec, w->path, "", SYSTEM_DIRS);
}

static size_t parent_of(const struct shape *s, size_t i)
{
	const char *path = s->w[i].path;
	size_t len = (size_t)(strrchr(path, '/') - path);

	for (size_t k = i; k-- > 1;)
		if (strlen(s->w[k].path) == len && !memcmp(s->w[k].path, path, len))
			return k;
	return 0; /* the root */
}

/* Number @i of the shape into the batch; @inos[0] is the root. */
static int put_want(struct store_batch *b, const struct shape *s, size_t i, const store_ino *inos,
		    const struct timespec *now)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	const char *name = strrchr(s->w[i].path, '/') + 1;
	size_t parent = parent_of(s, i);
	int r;

	hostbase_set_times(&rec, now);
	r = want_record(&s->w[i], &rec);
	for (size_t k = 1; s->w[i].kind == WANT_DIR && k < s->n; k++)
		if (parent_of(s, k) == i && s->w[k].kind <= WANT_HOST)
			rec.nlink++;
	if (r == 0 && i > 0) {
		struct rec_name n = {.ino = inos[i], .type = rec.mode & S_IFMT};

		r = hostbase_set_place(&rec, inos[parent], name, strlen(name));
		if (r == 0)
			r = store_batch_name(b, inos[parent], name, strlen(name), &n);
	}
	return r < 0 ? r : store_batch_inode(b, inos[i], &rec);
}

static int write_shape(struct store *st, const struct shape *s, store_layer layer)
{
	struct timespec now = hostbase_now();
	store_ino inos[WANT_MAX], first;
	struct store_batch *b;
	int r = store_reserve_inos(st, s->n, &first);

	if (r == 0)
		r = store_batch_begin(st, layer, &b);
	if (r < 0)
		return r;
	inos[0] = STORE_ROOT_INO;
	for (size_t i = 1; i < s->n; i++)
		inos[i] = first + i;
	for (size_t i = 0; r == 0 && i < s->n; i++)
		r = put_want(b, s, i, inos, &now);
	if (r < 0) {
		store_batch_abort(b);
		return r;
	}
	r = store_batch_commit(b);
	return r < 0 ? r : store_layer_seal(st, layer);
}

/* ---- keeping it ---- */

struct old_shapes {
	const char *keep;
	char name[8][sizeof SHAPE_REF + SHAPE_HEX];
	size_t n;
};

static int see_ref(void *arg, const char *name, store_layer layer)
{
	struct old_shapes *o = arg;

	(void)layer;
	if (strncmp(name, SHAPE_REF, strlen(SHAPE_REF)) != 0 || !strcmp(name, o->keep) ||
	    strlen(name) >= sizeof o->name[0])
		return 0;
	memcpy(o->name[o->n++], name, strlen(name) + 1);
	return o->n == ARRAY_SIZE(o->name);
}

/* The new base, and nothing that would keep older ones from being collected: environments that began
 * on one hold it themselves. */
static int install(struct store *s, const char *ref, store_layer layer)
{
	struct old_shapes old = {.keep = ref};
	int r = store_ref_set(s, ref, layer);

	if (r == 0)
		r = store_ref_set(s, HOSTBASE_REF, layer);
	if (r == 0)
		r = store_refs(s, see_ref, &old);
	for (size_t i = 0; r >= 0 && i < old.n; i++) {
		int e = store_ref_del(s, old.name[i]);

		if (e < 0 && e != -ENOENT) /* another process was faster */
			r = e;
	}
	return r < 0 ? r : 0;
}

int hostbase_get(struct store *s, struct diag *diag, store_layer *ret)
{
	cleanup_free struct shape *shape = calloc(1, sizeof *shape);
	char ref[sizeof SHAPE_REF + DIGEST_LEN * 2];
	store_layer layer, base;
	struct digest d;
	int r = shape ? shape_make(shape) : -ENOMEM;

	if (r == 0)
		r = shape_digest(shape, &d);
	if (r < 0)
		return diag_set(diag, r, "cannot look at this host's directories: %s", err_text(r));
	memcpy(ref, SHAPE_REF, strlen(SHAPE_REF));
	digest_hex(&d, ref + strlen(SHAPE_REF));
	ref[strlen(SHAPE_REF) + SHAPE_HEX] = '\0';
	r = store_ref_get(s, ref, &layer);
	if (r == 0 && store_ref_get(s, HOSTBASE_REF, &base) == 0 && base == layer) {
		*ret = layer;
		return 0;
	}
	/* Two processes may both get here: each makes a whole base, and either will do. */
	if (r == -ENOENT) {
		r = store_layer_new(s, 0, &layer);
		if (r == 0)
			r = write_shape(s, shape, layer);
	}
	if (r == 0)
		r = install(s, ref, layer);
	if (r < 0)
		return diag_set(diag, r, "cannot make the base \"host\": %s", err_text(r));
	*ret = layer;
	return 0;
}
