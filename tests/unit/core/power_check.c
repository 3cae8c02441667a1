/* See power_check.h. */
#include "tests/unit/core/power_check.h"

#include "store/fsck.h"
#include "store/synclog.h"
#include "tests/power/work.h"
#include "tests/unit/core/ovl_fixture.h"

#define COMMITS_MAX 512
#define ENTS_MAX    64
#define NEVER       SIZE_MAX /* an event that did not come */

/* What the log says, each with the event at which it says so. */
struct told {
	size_t opened; /* the first promise: the store is there */
	struct {
		uint64_t digest;
		size_t begun, ended, acked; /* NEVER: not at all */
	} step[POWER_WRITERS][POWER_STEPS_MAX];
	unsigned steps[POWER_WRITERS];
	struct {
		size_t at;
		struct digest id;
		unsigned least[POWER_WRITERS];
	} commit[COMMITS_MAX];
	unsigned commits;
};
static struct told told;

static void read_note(const char *text, size_t at)
{
	unsigned t, k, l[POWER_WRITERS];
	char id[POWER_ID];
	unsigned long long digest;

	if (sscanf(text, "s %u %u %llu", &t, &k, &digest) == 3 && t < POWER_WRITERS &&
	    k < POWER_STEPS_MAX) {
		told.step[t][k].digest = digest;
		told.step[t][k].begun = at;
		told.step[t][k].ended = told.step[t][k].acked = NEVER;
		told.steps[t] = k + 1;
	} else if (sscanf(text, "e %u %u", &t, &k) == 2 && t < POWER_WRITERS &&
		   k < POWER_STEPS_MAX) {
		told.step[t][k].ended = at;
	} else if (sscanf(text, "a %u %u", &t, &k) == 2 && t < POWER_WRITERS &&
		   k < POWER_STEPS_MAX) {
		told.step[t][k].acked = at;
	} else if (sscanf(text, "c %79s %u %u %u", id, &l[0], &l[1], &l[2]) == 4 &&
		   told.commits < COMMITS_MAX &&
		   digest_parse(id, &told.commit[told.commits].id) == 0) {
		told.commit[told.commits].at = at;
		memcpy(told.commit[told.commits++].least, l, sizeof(l));
	} else if (!strcmp(text, "o")) {
		told.opened = at;
	} else {
		tap_fatal("a note that nobody understands: %s", text);
	}
}

bool power_check_notes(const struct disk *d)
{
	char text[200];

	told = (struct told){.opened = NEVER};
	for (size_t i = 0; i < disk_events(d); i++) {
		const struct power_rec *r = disk_event(d, i);

		if (r->type != POWER_NOTE || r->len >= sizeof(text))
			continue;
		memcpy(text, disk_payload(r), r->len);
		text[r->len] = 0;
		read_note(text, i);
	}
	printf("# %zu events, %u steps, %u commits\n", disk_events(d), told.steps[0], told.commits);
	return told.opened != NEVER && told.steps[0] > 2 && told.commits > 3;
}

/* ---- looking at a tree ---- */

struct look {
	struct fx *f;
	struct seen_ent e[ENTS_MAX];
	store_ino ino[ENTS_MAX];
	size_t n;
};

static int look_one(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct look *l = arg;

	(void)cookie;
	(void)e;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (l->n == ENTS_MAX || strlen(name) >= sizeof(l->e[0].name))
		return -E2BIG;
	l->e[l->n] = (struct seen_ent){.links = 1};
	memcpy(l->e[l->n++].name, name, strlen(name) + 1);
	return 0;
}

static int look_up(struct look *l, store_ino dir, size_t i)
{
	struct seen_ent *s = &l->e[i];
	struct ovl_entry e;
	mode_t mode;
	int r = ovl_lookup(l->f->o, dir, s->name, &e);

	if (r < 0 || !e.ino)
		return r < 0 ? r : -ENOENT;
	mode = e.attr.st.st_mode;
	s->type = S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : 'f';
	if (s->type == 'f') {
		s->links = (unsigned)e.attr.st.st_nlink;
		s->size = (uint64_t)e.attr.st.st_size;
	}
	l->ino[i] = e.ino;
	return 0;
}

static int look_bytes(struct look *l, size_t i)
{
	cleanup_free uint8_t *p = malloc(l->e[i].size + 1);
	size_t done = 0;

	while (p && done < l->e[i].size) {
		ssize_t k = ovl_read(l->f->o, l->ino[i], done, p + done, l->e[i].size - done);

		if (k <= 0)
			return k < 0 ? (int)k : -EIO;
		done += (size_t)k;
	}
	l->e[i].hash = p ? power_hash(p, done) : 0;
	return p ? 0 : -ENOMEM;
}

static int digest_dir(struct fx *f, const struct power_crash *c, unsigned t, uint64_t *ret)
{
	struct look l = {.f = f};
	struct ovl_entry e;
	char name[64];
	int r;

	(void)snprintf(name, sizeof(name), "%st%u", c->prefix, t);
	r = fx_get(f, name, &e);
	if (r < 0)
		return r;
	r = ovl_readdir(f->o, e.ino, 0, false, look_one, &l);
	for (size_t i = 0; r == 0 && i < l.n; i++) {
		r = look_up(&l, e.ino, i);
		if (r == 0 && l.e[i].type == 'f')
			r = look_bytes(&l, i);
	}
	for (size_t i = 0; i < l.n; i++)
		if (l.ino[i])
			ovl_forget(f->o, l.ino[i], 1);
	ovl_forget(f->o, e.ino, 1);
	if (r == 0)
		*ret = power_digest(l.e, l.n);
	return r;
}

/* ---- what must hold ---- */

__attribute__((format(printf, 2, 3))) static bool wrong(struct power_crash *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c->text, sizeof(c->text), fmt, ap);
	va_end(ap);
	c->why = c->text;
	return false;
}

static unsigned least_acked(unsigned t, size_t at)
{
	unsigned least = 0;

	for (unsigned k = 0; k < told.steps[t]; k++)
		if (told.step[t][k].acked < at)
			least = k;
	return least;
}

/* The steps whose state a directory may show: a rollback brings an old one back. */
struct choice {
	unsigned k[8], n;
};

static bool find_choices(struct fx *f, struct power_crash *c, unsigned t, unsigned least,
			 struct choice *ret)
{
	uint64_t digest;
	int r = digest_dir(f, c, t, &digest);

	ret->n = 0;
	if (r < 0)
		return wrong(c, "the directory of writer %u: %s", t, err_text(r));
	for (unsigned k = least; k < told.steps[t] && ret->n < ARRAY_SIZE(ret->k); k++)
		if (told.step[t][k].digest == digest && told.step[t][k].begun < c->at)
			ret->k[ret->n++] = k;
	return ret->n ? true : wrong(c, "writer %u: no state from step %u on", t, least);
}

/* One moment: a step that is there did not begin after the end of one that is not. */
static bool one_moment(const struct power_crash *c, const unsigned is[POWER_WRITERS])
{
	for (unsigned t = 0; t < POWER_WRITERS; t++)
		for (unsigned u = 0; u < POWER_WRITERS; u++) {
			unsigned next = is[t] + 1;

			if (next < told.steps[t] && told.step[t][next].ended < c->at &&
			    told.step[t][next].ended < told.step[u][is[u]].begun)
				return false;
		}
	return true;
}

/* Each writer's directory shows a step not older than @least and begun before the crash, all at one
 * moment. */
static bool check_tree(struct fx *f, struct power_crash *c, const unsigned least[POWER_WRITERS])
{
	struct choice ch[POWER_WRITERS];

	for (unsigned t = 0; t < POWER_WRITERS; t++)
		if (!find_choices(f, c, t, least[t], &ch[t]))
			return false;
	for (unsigned i = 0; i < ch[0].n * ch[1].n * ch[2].n; i++) {
		unsigned is[POWER_WRITERS] = {ch[0].k[i % ch[0].n], ch[1].k[i / ch[0].n % ch[1].n],
					      ch[2].k[i / ch[0].n / ch[1].n]};

		if (one_moment(c, is))
			return true;
	}
	return wrong(c, "a mixture of moments: steps %u, %u, %u", ch[0].k[0], ch[1].k[0],
		     ch[2].k[0]);
}

static bool check_commit(struct fx *f, struct power_crash *c, unsigned i)
{
	struct store_commit sc = {0};
	bool good;
	int r = store_commit_get(f->s, &told.commit[i].id, &sc);

	if (r < 0)
		return wrong(c, "commit %u: %s", i, err_text(r));
	f->layer = sc.layer;
	store_commit_release(&sc);
	fx_mount(f);
	good = check_tree(f, c, told.commit[i].least);
	fx_umount(f);
	return good;
}

/* The store can be written to, and what is written is there. */
static bool check_goes_on(struct fx *f, struct power_crash *c, const struct store_env *env)
{
	struct stat st;
	int r;

	f->layer = env->open;
	f->opts.flags = 0;
	fx_mount(f);
	r = fx_make(f, "after", FX_FILE, 0600);
	if (r == 0)
		r = fx_write(f, "after", 0, "new", 3) == 3 ? ovl_flush(f->o) : -EIO;
	fx_umount(f);
	fx_mount(f);
	if (r == 0)
		r = fx_stat(f, "after", &st);
	if (r == 0 && st.st_size != 3)
		r = -EIO;
	fx_umount(f);
	return r == 0 ? true : wrong(c, "it does not go on: %s", err_text(r));
}

static bool check_store(struct fx *f, struct power_crash *c, uint64_t seed)
{
	struct store_env env;
	unsigned least[POWER_WRITERS], last = 0;
	int r = store_env_get(f->s, c->env, &env);
	bool good;

	if (told.opened >= c->at) /* nothing was promised yet */
		return r == 0 || r == -ENOENT || wrong(c, "the environment: %s", err_text(r));
	if (r < 0)
		return wrong(c, "the environment: %s", err_text(r));
	for (unsigned t = 0; t < POWER_WRITERS; t++)
		least[t] = least_acked(t, c->at);
	f->layer = env.open;
	if (store_log_open(f->s, c->env, &f->opts.log) < 0)
		return wrong(c, "no log");
	fx_mount(f);
	good = check_tree(f, c, least);
	fx_umount(f);
	store_log_close(f->opts.log);
	f->opts.log = NULL;
	f->opts.flags = OVL_RDONLY;
	while (last < told.commits && told.commit[last].at < c->at)
		last++;
	if (good && last)
		good = check_commit(f, c, last - 1) && check_commit(f, c, (unsigned)(seed % last));
	return good && seed % 4 == 0 ? check_goes_on(f, c, &env) : good;
}

static int told_finding(void *arg, const struct store_finding *f)
{
	struct power_crash *c = arg;

	if (f->state != STORE_FINDING_NOTE)
		(void)wrong(c, "fsck: %s: %s", f->kind, f->text);
	return 0;
}

static bool check_fsck(const char *data, struct power_crash *c)
{
	struct store_fsck_opts o = {.finding = told_finding, .arg = c};
	struct store_fsck_sum sum = {0};
	struct diag d = {0};
	int r = store_fsck(data, &o, &d, &sum);

	if (r < 0)
		return wrong(c, "fsck: %s", d.text);
	return sum.damaged + sum.repairable == 0;
}

bool power_check(const char *data, struct power_crash *c, uint64_t seed)
{
	struct fx f = {0};
	struct diag d = {0};
	bool good;

	if (store_open(data, STORE_CREATE, &d, &f.s) < 0)
		return wrong(c, "store_open: %s", d.text);
	store_close(f.s);
	/* Before the tree is opened, which writes down what the log says. */
	if (!check_fsck(data, c))
		return false;
	if (store_open(data, 0, &d, &f.s) < 0)
		return wrong(c, "store_open: %s", d.text);
	good = check_store(&f, c, seed);
	store_close(f.s);
	return good && check_fsck(data, c);
}
