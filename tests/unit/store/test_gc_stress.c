/*
 * store: S5 under load. Processes that write, overwrite, cut, seal, roll back and undo the same few blocks, and a
 * collector that runs without end, are killed at any moment, many times over. After each round every record
 * of the store names a chunk that reads back, and each process's tree and commits are what it was told they are.
 * Then the same by threads of one process, for the sanitizers. RATTAN_LONG=1: for minutes.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "store/fsck.h"
#include "store/key.h"
#include "store/store_internal.h"
#include "tests/unit/store/gc_test.h"

#define WORKERS 3
#define INOS    4
#define BLOCKS  3
#define COMMITS 4096

/* The blocks that all write now: a few, and others soon, so that there is always something that nobody names
 * any more and somebody may write again. */
#define SEEDS    8
#define SEEDS_MS 30

/* What a tree holds: seed + 1, or 0 for nothing. */
struct tree {
	uint32_t at[INOS][BLOCKS];
};

enum kind {
	WRITE,
	CUT,
	SEAL,
	RESET,
	UNDO
};

struct msg {
	uint8_t kind, ack, ino, block;
	uint32_t seed;
	uint32_t serial; /* of a seal */
};

static long long now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static size_t size_of(uint32_t seed)
{
	static const size_t sizes[] = {700, 3000, 5000, 17000};

	return sizes[seed % 4];
}

static size_t fill(uint32_t seed, uint8_t *bytes)
{
	size_t n = size_of(seed);
	uint64_t x = seed;

	for (size_t i = 0; i < n; i += 4) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		bytes[i] = bytes[i + 1] = bytes[i + 2] = bytes[i + 3] = (uint8_t)(x >> 56);
	}
	memcpy(bytes, &seed, sizeof(seed));
	return n;
}

static store_ino ino_of(unsigned who, unsigned i)
{
	return 1000 + who * 100 + i;
}

static void env_name(unsigned who, char ret[static 8])
{
	(void)snprintf(ret, 8, "w%u", who);
}

static void label_of(unsigned who, uint32_t serial, bool automatic, char ret[static 40])
{
	(void)snprintf(ret, 40, "w%u %s %u", who, automatic ? "auto" : "commit", serial);
}

/* For bytes; no two threads use one. */
struct room {
	uint8_t bytes[32 << 10], got[STORE_BLOCK];
};

/* The seed of a chunk that reads back as it was written, and one; 0 when it does not. */
static uint32_t chunk_read(struct store *s, const struct digest *d, struct room *room)
{
	ssize_t n = store_chunk_get(s, d, room->got, sizeof(room->got));
	uint32_t seed;

	if (n < (ssize_t)sizeof(seed))
		return 0;
	memcpy(&seed, room->got, sizeof(seed));
	return fill(seed, room->bytes) == (size_t)n && !memcmp(room->got, room->bytes, (size_t)n)
		       ? seed + 1
		       : 0;
}

/* ---- a worker ---- */

struct worker {
	struct store *s;
	unsigned who, seed;
	struct store_env e;
	uint32_t serial;
	bool may_undo, changed;
	int fd;                                   /* -1: nobody listens */
	struct tree cur, next, committed, before; /* as it believes, when nobody listens */
	struct room room;
};

static unsigned rnd(struct worker *w, unsigned n)
{
	w->seed = w->seed * 1103515245 + 12345;
	return (w->seed >> 8) % n;
}

static int tell(struct worker *w, struct msg m, bool ack)
{
	m.ack = ack;
	return w->fd < 0 || write(w->fd, &m, sizeof(m)) == sizeof(m) ? 0 : -EPIPE;
}

static int put_and_name(struct worker *w, const struct msg *m)
{
	store_ino ino = ino_of(w->who, m->ino);
	struct store_chunk c = {.data = w->room.bytes, .len = fill(m->seed, w->room.bytes)};
	int r = -EAGAIN;

	for (int i = 0; r == -EAGAIN && i < 8; i++) {
		struct rec_inode rec = file_rec(c.len);
		struct store_extent x = {.block = m->block, .len = (uint32_t)c.len};
		struct store_batch *b;

		r = store_chunks_put(w->s, &c, 1);
		if (r == 0)
			r = store_batch_begin(w->s, w->e.open, &b);
		if (r < 0)
			return r;
		x.chunk = rec.chunk = c.digest;
		rec.chunk_len = x.len;
		rec.content = ino % 2 == 0 && m->block == 0 ? REC_CHUNK : REC_EXTENTS;
		if (rec.content == REC_EXTENTS)
			r = store_batch_extent(b, ino, &x);
		if (r == 0 && (m->block == 0 || ino % 2))
			r = store_batch_inode(b, ino, &rec);
		if (r == 0)
			r = store_batch_commit(b);
		else
			store_batch_abort(b);
	}
	return r;
}

static int cut(struct worker *w, const struct msg *m)
{
	struct store_batch *b;
	int r = store_batch_begin(w->s, w->e.open, &b);

	if (r < 0)
		return r;
	r = store_batch_extents_cut(b, ino_of(w->who, m->ino), m->block);
	if (r < 0) {
		store_batch_abort(b);
		return r;
	}
	return store_batch_commit(b);
}

static int seal(struct worker *w, uint32_t serial, bool automatic)
{
	char label[40];
	struct store_commit c;

	label_of(w->who, serial, automatic, label);
	c = commit_of(label);
	c.kind = automatic ? STORE_AUTO : STORE_COMMIT;
	(void)clock_gettime(CLOCK_REALTIME, &c.time);
	return store_env_seal(w->s, &w->e, &c);
}

static int reset(struct worker *w, uint32_t serial)
{
	store_layer head;
	int r = store_head_commit(w->s, w->e.head, &head);

	if (r == 0)
		r = seal(w, serial, true);
	return r < 0 ? r : store_env_move(w->s, &w->e, head, "reset");
}

static int undo(struct worker *w)
{
	store_layer from;
	char op[32];
	int r = store_env_last_move(w->s, w->e.name, op, &from);

	return r < 0 ? r : store_env_move(w->s, &w->e, from, "undo");
}

/* What the tree is afterwards. */
static void imagine(struct tree *t, const struct msg *m, const struct tree *committed,
		    const struct tree *before)
{
	if (m->kind == WRITE)
		t->at[m->ino][m->block] = m->seed + 1;
	if (m->kind == CUT)
		for (unsigned b = m->block; b < BLOCKS; b++)
			t->at[m->ino][b] = 0;
	if (m->kind == RESET)
		*t = *committed;
	if (m->kind == UNDO)
		*t = *before;
}

static struct msg choose(struct worker *w)
{
	struct msg m = {.ino = (uint8_t)rnd(w, INOS),
			.block = (uint8_t)rnd(w, BLOCKS),
			.seed = (uint32_t)(now_ms() / SEEDS_MS) * 3 + rnd(w, SEEDS),
			.serial = w->serial};
	unsigned n = rnd(w, 64);

	if (w->may_undo && rnd(w, 2))
		m.kind = UNDO;
	else if (n < 50)
		m.kind = WRITE;
	else if (n < 60)
		m.kind = m.ino % 2 ? CUT : WRITE;
	else if (n < 62 || !w->changed)
		m.kind = SEAL;
	else
		m.kind = RESET;
	return m;
}

static int act(struct worker *w, const struct msg *m)
{
	switch ((enum kind)m->kind) {
	case WRITE:
		return put_and_name(w, m);
	case CUT:
		return cut(w, m);
	case SEAL:
		w->serial++;
		return seal(w, m->serial, false);
	case RESET:
		w->serial++;
		return reset(w, m->serial);
	case UNDO:
		return undo(w);
	}
	return -EINVAL;
}

/* Whatever the tree names now is there now. */
static int look(struct worker *w)
{
	unsigned ino = rnd(w, INOS), block = rnd(w, BLOCKS);
	struct store_view *v;
	struct digest d;
	int r = store_view_open(w->s, w->e.open, &v);

	if (r < 0)
		return r;
	if (gc_block(v, ino_of(w->who, ino), block, &d) && !chunk_read(w->s, &d, &w->room))
		r = -EBADMSG;
	store_view_close(v);
	return r;
}

static int step(struct worker *w)
{
	struct msg m = choose(w);
	int r = tell(w, m, false);

	if (r == 0)
		r = act(w, &m);
	if (r == 0)
		r = look(w);
	if (r < 0) {
		(void)fprintf(stderr, "# worker %u, kind %d: %d\n", w->who, m.kind, r);
		return r;
	}
	imagine(&w->cur, &m, &w->committed, &w->before);
	if (m.kind == RESET)
		w->before = w->next;
	if (m.kind == SEAL)
		w->committed = w->cur;
	w->next = w->cur;
	w->may_undo = m.kind == RESET;
	w->changed = m.kind == WRITE || m.kind == CUT ||
		     (w->changed && m.kind != SEAL && m.kind != RESET);
	return tell(w, m, true);
}

static int worker_main(char **argv)
{
	struct worker w = {.s = open_store(argv[2]),
			   .who = (unsigned)atoi(argv[3]),
			   .fd = atoi(argv[4]),
			   .serial = (uint32_t)strtoul(argv[5], NULL, 10),
			   .seed = (unsigned)getpid() * 7919u + 1};
	char name[8];

	env_name(w.who, name);
	if (store_env_get(w.s, name, &w.e) < 0)
		return 1;
	while (step(&w) == 0)
		;
	return 1;
}

/* Now and then it stands still between two steps, for others to get in between. */
static bool go_on(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	unsigned *seed = arg;

	(void)done;
	(void)total;
	*seed = *seed * 1103515245 + 12345;
	if (phase >= STORE_GC_MARK && phase <= STORE_GC_SWEEP && (*seed >> 8) % 2 == 0)
		(void)nanosleep(&(struct timespec){.tv_nsec = (long)(*seed >> 8) % 6000000}, NULL);
	return true;
}

static int collector_main(char **argv)
{
	struct store *s = open_store(argv[2]);
	unsigned n = (unsigned)getpid(), seed = n;

	for (;; n++) {
		struct store_gc_opts o = {.keep_moves = 2,
					  .shrink = n % 3 == 0,
					  .pack = n % 2 == 0,
					  .go_on = go_on,
					  .arg = &seed};
		struct store_gc_result res;
		struct diag d = {0};
		int r = store_gc(s, &o, &d, &res);

		if (r < 0) {
			(void)fprintf(stderr, "# collector: %d %s\n", r, d.text);
			return 1;
		}
	}
}

/* ---- the judge ---- */

struct judged {
	struct tree cur, next, committed, before;
	uint32_t serial; /* the next one */
	struct {
		uint32_t serial;
		struct tree tree;
	} commit[COMMITS];
	unsigned ncommits;
};

static struct judged judged[WORKERS];

static void hear(struct judged *j, const struct msg *m)
{
	if (!m->ack) {
		j->next = j->cur;
		imagine(&j->next, m, &j->committed, &j->before);
		if (m->kind == RESET || m->kind == SEAL)
			j->serial = m->serial + 1;
		if (m->kind == RESET)
			j->before = j->cur;
		return;
	}
	j->cur = j->next;
	if (m->kind != SEAL)
		return;
	j->committed = j->cur;
	if (j->ncommits < COMMITS) {
		j->commit[j->ncommits].serial = m->serial;
		j->commit[j->ncommits++].tree = j->cur;
	}
}

static bool tree_read(struct store *s, store_layer layer, unsigned who, struct tree *ret)
{
	static struct room room;
	struct store_view *v;
	bool good = true;

	memset(ret, 0, sizeof(*ret));
	if (store_view_open(s, layer, &v) < 0)
		return false;
	for (unsigned i = 0; i < INOS; i++)
		for (unsigned b = 0; b < BLOCKS; b++) {
			struct digest d;

			if (!gc_block(v, ino_of(who, i), b, &d))
				continue;
			ret->at[i][b] = chunk_read(s, &d, &room);
			good = good && ret->at[i][b];
		}
	store_view_close(v);
	return good;
}

static bool same(const struct tree *a, const struct tree *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static bool commits_stand(struct store *s, unsigned who, const struct judged *j)
{
	/* the newest, and some of the others in turn */
	for (unsigned i = 0; i < j->ncommits; i++) {
		struct store_commit want, c;
		struct tree is;
		char label[40];

		if (j->ncommits - i > 10 && i % 17 != j->serial % 17)
			continue;
		label_of(who, j->commit[i].serial, false, label);
		want = commit_of(label);
		if (store_commit_get(s, &want.id, &c) < 0 || !tree_read(s, c.layer, who, &is) ||
		    !same(&is, &j->commit[i].tree)) {
			printf("# commit %s is not what it was\n", label);
			return false;
		}
		store_commit_release(&c);
	}
	return true;
}

static bool judge(struct store *s, unsigned who)
{
	struct judged *j = &judged[who];
	struct store_env e;
	struct tree is;
	store_layer head;
	char name[8];

	env_name(who, name);
	if (store_env_get(s, name, &e) < 0 || !tree_read(s, e.open, who, &is))
		return false;
	if (!same(&is, &j->cur) && !same(&is, &j->next)) {
		printf("# the tree of %s is neither what it was nor what it was to be\n", name);
		return false;
	}
	j->cur = is;
	/* a seal that was not acknowledged may have been made */
	if (store_head_commit(s, e.head, &head) < 0 || !tree_read(s, head, who, &j->committed))
		return false;
	return commits_stand(s, who, j);
}

static bool is_there(struct store *s, const struct digest *d)
{
	MDB_txn *t;
	bool yes;

	if (store_tx_begin(s, &t) < 0)
		return false;
	yes = store_chunk_has(s, t, d, STORE_BLOCK) == 0;
	store_tx_abortp(&t);
	return yes;
}

/* Every chunk that any record of any layer names is there. */
static unsigned dangling(struct store *s, enum store_db db, unsigned *ret_named)
{
	MDB_txn *t;
	MDB_cursor *c;
	MDB_val k, v;
	unsigned bad = 0;
	int r;

	if (mdb_txn_begin(s->meta.env, NULL, MDB_RDONLY, &t) || mdb_cursor_open(t, s->db[db], &c))
		tap_fatal("scan");
	for (r = store_cur_get(c, db, &k, &v, MDB_FIRST); r == 0;
	     r = store_cur_get(c, db, &k, &v, MDB_NEXT)) {
		struct rec_inode rec = {0};
		struct digest d = {0};

		if (v.mv_size == 0 || v.mv_size == 4)
			continue;
		if (db == DB_INODES) {
			bad += rec_inode_decode(v.mv_data, v.mv_size, &rec) < 0;
			d = rec.chunk;
			rec_inode_release(&rec);
			if (store_digest_is_zero(&d))
				continue;
		} else {
			memcpy(d.b, (uint8_t *)v.mv_data + 4, DIGEST_LEN);
		}
		++*ret_named;
		bad += !is_there(s, &d);
	}
	mdb_cursor_close(c);
	mdb_txn_abort(t);
	return bad + (r != -ENOENT);
}

/* The workers keep no tree: their inodes have no names. */
static int on_finding(void *arg, const struct store_finding *f)
{
	bool tree = !strcmp(f->where, "inodes") || !strcmp(f->where, "extents") ||
		    !strcmp(f->where, "meta");

	if (f->state == STORE_FINDING_NOTE || (tree && strcmp(f->kind, "chunk") != 0))
		return 0;
	printf("# fsck: %s: %s\n", f->where, f->text);
	++*(int *)arg;
	return 0;
}

static bool fsck_clean(const char *dir)
{
	int found = 0;
	struct store_fsck_opts o = {.finding = on_finding, .arg = &found};
	struct store_fsck_sum sum;
	struct diag d = {0};

	if (store_fsck(dir, &o, &d, &sum) < 0) {
		printf("# fsck: %s\n", d.text);
		return false;
	}
	return found == 0;
}

static void judge_all(const char *dir, int round)
{
	struct store *s = open_store(dir);
	unsigned bad = 0, named = 0;

	for (unsigned i = 0; i < WORKERS; i++)
		bad += !judge(s, i);
	bad += dangling(s, DB_INODES, &named);
	bad += dangling(s, DB_EXTENTS, &named);
	ok(bad == 0, "round %d: %u records name chunks, %u commits by the first", round, named,
	   judged[0].ncommits);
	store_close(s);
	if (round % 6 == 5 || round < 0)
		ok(fsck_clean(dir), "and fsck finds nothing");
}

/* ---- rounds ---- */

struct child {
	pid_t pid;
	int fd;
};

static struct child start(const char *dir, const char *mode, unsigned who)
{
	struct child c = {.fd = -1};
	char who_text[16], fd_text[16], serial[16];
	int p[2];

	if (pipe(p) < 0)
		tap_fatal("pipe");
	(void)fcntl(p[0], F_SETFD, FD_CLOEXEC);
	(void)snprintf(who_text, sizeof(who_text), "%u", who);
	(void)snprintf(fd_text, sizeof(fd_text), "%d", p[1]);
	(void)snprintf(serial, sizeof(serial), "%u", who < WORKERS ? judged[who].serial : 0);
	c.pid = fork();
	if (c.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		(void)execl("/proc/self/exe", "test_gc_stress", mode, dir, who_text, fd_text,
			    serial, (char *)NULL);
		_exit(1);
	}
	if (c.pid < 0)
		tap_fatal("fork");
	(void)close(p[1]);
	c.fd = p[0];
	return c;
}

static void finish(struct child *c, struct judged *j)
{
	struct msg m;
	int status;

	(void)kill(c->pid, SIGKILL);
	while (j && read(c->fd, &m, sizeof(m)) == sizeof(m))
		hear(j, &m);
	(void)close(c->fd);
	if (waitpid(c->pid, &status, 0) != c->pid || !WIFSIGNALED(status))
		tap_fatal("a child ended by itself");
}

/* The pipe holds 64 KiB: read on while the round lasts. */
static void listen_for(struct child *c, long long ms)
{
	struct timespec t = {0, 1000000};
	long long end = now_ms() + ms;
	struct msg m;

	for (unsigned i = 0; i < WORKERS; i++)
		(void)fcntl(c[i].fd, F_SETFL, O_NONBLOCK);
	do {
		for (unsigned i = 0; i < WORKERS; i++)
			while (read(c[i].fd, &m, sizeof(m)) == sizeof(m))
				hear(&judged[i], &m);
		(void)nanosleep(&t, NULL);
	} while (now_ms() < end);
	for (unsigned i = 0; i < WORKERS; i++)
		(void)fcntl(c[i].fd, F_SETFL, 0);
}

static void one_round(const char *dir, unsigned *seed, int round)
{
	struct child c[WORKERS + 1];

	for (unsigned i = 0; i < WORKERS; i++)
		c[i] = start(dir, "worker", i);
	c[WORKERS] = start(dir, "collector", WORKERS);
	*seed = *seed * 1103515245 + 12345;
	listen_for(c, 50 + (*seed >> 8) % 300);
	/* in any order */
	for (unsigned i = 0; i <= WORKERS; i++) {
		unsigned k = (i + (*seed >> 4)) % (WORKERS + 1);

		finish(&c[k], k < WORKERS ? &judged[k] : NULL);
	}
	judge_all(dir, round);
}

/* ---- threads ---- */

static bool stop;

static void *worker_thread(void *arg)
{
	intptr_t r = 0;

	while (r == 0 && !__atomic_load_n(&stop, __ATOMIC_RELAXED))
		r = step(arg);
	return (void *)r;
}

static void *collector_thread(void *arg)
{
	intptr_t r = 0;

	for (unsigned n = 0; r == 0 && !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
		struct store_gc_opts o = {
			.keep_moves = 2, .shrink = n % 3 == 0, .pack = n % 2 == 0};
		struct store_gc_result res;

		r = store_gc(arg, &o, NULL, &res);
	}
	return (void *)r;
}

static void threads(const char *dir, unsigned ms)
{
	struct store *s = open_store(dir);
	struct worker w[WORKERS] = {0};
	pthread_t t[WORKERS + 1];
	struct timespec wait = {ms / 1000, (long)(ms % 1000) * 1000000};
	unsigned bad = 0;
	void *r;

	for (unsigned i = 0; i < WORKERS; i++) {
		char name[8];

		env_name(i, name);
		w[i] = (struct worker){.s = s, .who = i, .fd = -1, .seed = i + 1};
		w[i].serial = judged[i].serial;
		w[i].cur = w[i].next = judged[i].cur;
		w[i].committed = judged[i].committed;
		if (store_env_get(s, name, &w[i].e) < 0 ||
		    pthread_create(&t[i], NULL, worker_thread, &w[i]))
			tap_fatal("thread");
	}
	if (pthread_create(&t[WORKERS], NULL, collector_thread, s))
		tap_fatal("thread");
	(void)nanosleep(&wait, NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i <= WORKERS; i++)
		bad += pthread_join(t[i], &r) || r;
	eq_int(bad, 0, "threads and a collector of one process");
	for (unsigned i = 0; i < WORKERS; i++) {
		judged[i].cur = judged[i].next = w[i].cur;
		judged[i].serial = w[i].serial;
	}
	store_close(s);
	judge_all(dir, -1);
}

/* In memory there is no disk to wait for, and a second holds more of everything. */
static void make_fast_dir(char path[static 64])
{
	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 1);
	make_dir(path);
}

int main(int argc, char **argv)
{
	const char *is_long = getenv("RATTAN_LONG");
	int rounds = is_long && *is_long ? 400 : 8;
	unsigned seed = (unsigned)getpid();
	char dir[64];
	struct store *s;

	if (argc == 6 && !strcmp(argv[1], "worker"))
		return worker_main(argv);
	if (argc == 6)
		return collector_main(argv);
	make_fast_dir(dir);
	s = open_store(dir);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct store_env e;
		char name[8];

		env_name(i, name);
		if (store_env_create(s, name, 0, NULL, &e) < 0)
			tap_fatal("create");
		gc_seal(s, &e, name, false);
	}
	store_close(s);
	for (int i = 0; i < rounds; i++)
		one_round(dir, &seed, i);
	threads(dir, is_long && *is_long ? 20000 : 1500);
	tree_remove(dir);
	return tap_done();
}
