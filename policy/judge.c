#include "policy/judge.h"

void judge_init(struct judge *j, struct policy *policy,
		int (*path)(void *arg, void *where, struct buf *out), void *arg)
{
	j->policy = policy;
	j->path = path;
	j->arg = arg;
	denials_init(&j->denials);
}

void judge_release(struct judge *j)
{
	denials_release(&j->denials);
}

int judge_found(const struct policy *p, int known, int place, bool several)
{
	if (!several)
		return place;
	return known < 0 ? policy_unseen(p, place) : policy_meet(p, known, place);
}

static bool allows(const struct judge *j, int state, unsigned what)
{
	return (policy_may(j->policy, state) & what) == what;
}

static int name_state(struct judge *j, const struct judge_name *n)
{
	return policy_child(j->policy, n->dir, n->name, n->len);
}

/* @name: in the directory @where; NULL: itself. @other: as in struct denial_of. */
static int refuse(struct judge *j, void *where, const struct judge_name *name, unsigned what,
		  const char *op, const char *other)
{
	/* A longer one, which a command makes step by step, is not worth the memory. */
	cleanup_buf struct buf path = {.max = 4096};
	struct denial_of of = {.op = op, .other = other, .need = POLICY_READ};
	int r = op ? j->path(j->arg, where, &path) : -EACCES;

	if (r == 0 && name && path.len > 1)
		r = buf_put(&path, "/", 1);
	if (r == 0 && name)
		r = buf_put(&path, name->name, name->len);
	if (r < 0)
		return -EACCES;
	if (what & (POLICY_MAY_WRITE | POLICY_MAY_PUT | POLICY_MAY_MKDIR))
		of.need = POLICY_WRITE;
	of.path = (const char *)path.data;
	denials_note(&j->denials, j->policy, &of);
	return -EACCES;
}

int judge_node(struct judge *j, const struct judge_node *n, unsigned what, const char *op)
{
	if (policy_trivial(j->policy) || allows(j, n->state, what))
		return 0;
	return refuse(j, n->where, NULL, what, op,
		      "another link of it is at a place that is closed");
}

int judge_name(struct judge *j, const struct judge_name *n, unsigned what, const char *op)
{
	if (policy_trivial(j->policy) || allows(j, name_state(j, n), what))
		return 0;
	return refuse(j, n->where, n, what, op,
		      "a rule names something below it, so only a directory can be made here");
}

int judge_look(struct judge *j, const struct judge_name *n, const char *op)
{
	int s;

	if (policy_trivial(j->policy))
		return 0;
	s = name_state(j, n);
	if (allows(j, s, POLICY_MAY_PASS))
		return 0;
	(void)refuse(j, n->where, n, POLICY_MAY_PASS, op, "");
	return policy_hides(j->policy, s) ? 1 : -EACCES;
}

int judge_go(struct judge *j, const struct judge_name *n, const char *op)
{
	int r;

	if (policy_trivial(j->policy))
		return 0;
	r = judge_name(j, n, POLICY_MAY_WRITE, op);
	if (r == 0 && policy_pinned(j->policy, n->dir, n->name, n->len))
		r = refuse(j, n->where, n, POLICY_MAY_WRITE, op,
			   "a rule names it or something below it, so it stays where it is");
	return r;
}

/* May @n come to be at @to? */
static int check_put(struct judge *j, const struct judge_name *to, const struct judge_node *n)
{
	int r = judge_name(j, to,
			   n->isdir ? POLICY_MAY_WRITE | POLICY_MAY_MKDIR
				    : POLICY_MAY_WRITE | POLICY_MAY_PUT,
			   "rename");

	/* A file with a place that is protected stays where it is. */
	return r < 0 || n->isdir ? r : judge_node(j, n, POLICY_MAY_WRITE, "rename");
}

int judge_rename(struct judge *j, const struct judge_name *from, const struct judge_node *what,
		 const struct judge_name *to, const struct judge_node *old, bool exchange)
{
	int r;

	if (policy_trivial(j->policy))
		return 0;
	r = judge_go(j, from, "rename");
	if (r == 0 && old)
		r = judge_go(j, to, "rename");
	if (r == 0)
		r = check_put(j, to, what);
	if (r == 0 && exchange)
		r = check_put(j, from, old);
	if (r < 0 || (!what->isdir && !(exchange && old->isdir)))
		return r;
	/* What lies below would silently come under other rules. */
	return policy_same_below(j->policy, name_state(j, from), name_state(j, to)) ? 0 : -EXDEV;
}

int judge_open(struct judge *j, const struct judge_node *n, bool change)
{
	if (n->isdir)
		return judge_node(j, n, POLICY_MAY_LIST, "list");
	return judge_node(j, n, change ? POLICY_MAY_WRITE : POLICY_MAY_READ,
			  change ? "open for writing" : "open");
}
