/* Commits, reopenings, rollbacks, and looks at older states. */
#include "tests/unit/core/model/model.h"

static void remember(struct model *m, store_layer layer)
{
	struct state *s =
		&m->states[m->nstates < STATES_MAX ? m->nstates++ : 1 + rnd(m, STATES_MAX - 1)];
	char name[32];

	if (s->layer)
		fx_rm(s->dir);
	snprintf(name, sizeof(name), "state%u", m->generation++);
	fx_path(&m->f, name, s->dir);
	fx_copy(m->dir, s->dir);
	s->layer = layer;
}

void op_commit(struct model *m)
{
	store_layer sealed = m->f.layer;
	int r;

	say(m, "commit");
	r = ovl_commit(m->f.o, fx_seal, &m->f);
	if (r < 0) {
		bad(m, err_text(r));
		return;
	}
	agree(m, "commit", 0, 0);
	remember(m, sealed);
}

void op_collect(struct model *m)
{
	struct store_gc_opts o = {.shrink = rnd(m, 4) == 0, .pack = rnd(m, 2) == 0};
	struct store_gc_result res;
	struct diag d = {0};

	say(m, "collect");
	if (store_gc(m->f.s, &o, &d, &res) < 0)
		bad(m, d.text);
	agree(m, "collect", 0, 0);
	if (rnd(m, 4) == 0)
		compare_tree(m);
}

void op_reopen(struct model *m)
{
	say(m, "reopen");
	close_all(m);
	fx_umount(&m->f);
	fx_mount(&m->f);
	agree(m, "reopen", 0, 0);
	compare_tree(m);
}

static void look_at(struct model *m, const struct state *s, const char *work)
{
	store_layer layer = m->f.layer;

	m->f.layer = s->layer;
	m->f.opts.flags = OVL_RDONLY;
	model_open(m, s->dir);
	fx_mount(&m->f);
	compare_tree(m);
	fx_umount(&m->f);
	m->f.layer = layer;
	m->f.opts.flags = 0;
	model_open(m, work);
}

static void go_to(struct model *m, const struct state *s, const char *work)
{
	char dir[PATH_MAX], name[32];

	snprintf(name, sizeof(name), "work%u", m->generation++);
	fx_path(&m->f, name, dir);
	fx_copy(s->dir, dir);
	model_open(m, dir);
	fx_rm(work);
	fx_child(&m->f, s->layer);
}

void op_rollback(struct model *m, bool look)
{
	const struct state *s;
	char old[PATH_MAX];

	if (m->nstates == 0)
		return;
	say(m, look ? "look" : "rollback");
	s = &m->states[rnd(m, (uint32_t)m->nstates)];
	snprintf(old, sizeof(old), "%s", m->dir);
	close_all(m);
	fx_umount(&m->f);
	if (look)
		look_at(m, s, old);
	else
		go_to(m, s, old);
	fx_mount(&m->f);
	agree(m, look ? "look" : "rollback", 0, 0);
	compare_tree(m);
}
