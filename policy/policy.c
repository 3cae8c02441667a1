/* States of places: what follows from a directory's and a name. */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/fold.h"
#include "policy/policy_internal.h"

const struct pstate *policy_state(const struct policy *p, int id)
{
	return atomic_load_explicit(&p->chunks[id / CHUNK], memory_order_acquire) + id % CHUNK;
}

/* ---- what a state allows ---- */

static unsigned may_of(const struct policy *p, const struct pstate *s)
{
	const struct pnode *n = s->node == NO_NODE ? NULL : &p->nodes[s->node];
	bool opens = n && (s->closed ? n->writes : n->grants);
	unsigned may = 0;

	if (s->access >= POLICY_READ)
		may |= POLICY_MAY_PASS | POLICY_MAY_READ | POLICY_MAY_LIST;
	if (s->access == POLICY_WRITE)
		may |= POLICY_MAY_WRITE | POLICY_MAY_MKDIR;
	if (s->access == POLICY_WRITE && !(n && n->narrows))
		may |= POLICY_MAY_PUT;
	/* On the way to what is allowed. What no rule names shows nothing else. */
	if (opens)
		may |= POLICY_MAY_PASS;
	if (opens && s->access == POLICY_NONE)
		may |= POLICY_MAY_LIST;
	if (n && n->writes)
		may |= POLICY_MAY_MKDIR;
	return may;
}

/* ---- making states ---- */

static bool is_still(const struct policy *p, const struct pstate *s)
{
	bool names = p->rules.names && p->rules.deep && s->access == POLICY_WRITE && !s->bare;

	return s->node == NO_NODE && s->glob == GLOB_DEAD && !names;
}

/* Is the node of any weight for what lies below? */
static bool node_counts(const struct policy *p, const struct pstate *s)
{
	const struct pnode *n = &p->nodes[s->node];

	return n->nchildren || (p->rules.names && n->access == POLICY_WRITE && !n->bare);
}

static void simplify(const struct policy *p, struct pstate *s)
{
	if (s->node != NO_NODE && !node_counts(p, s))
		s->node = NO_NODE;
	/* Nothing can open it again. */
	if (s->node == NO_NODE && s->access <= POLICY_DENY) {
		s->glob = GLOB_DEAD;
		s->closed = false;
	}
	if (!p->globs || !glob_live(p->globs, s->glob))
		s->glob = GLOB_DEAD;
	if (!p->rules.deep || s->access != POLICY_WRITE)
		s->bare = false;
	if (!p->rules.strict || s->unseen > s->access || s->access <= POLICY_DENY)
		s->unseen = s->access;
	s->still = is_still(p, s);
	s->may = (uint8_t)may_of(p, s);
}

static bool same(const struct pstate *a, const struct pstate *b)
{
	return a->node == b->node && a->glob == b->glob && a->access == b->access &&
	       a->unseen == b->unseen && a->closed == b->closed && a->bare == b->bare;
}

static size_t hash_state(const struct pstate *s)
{
	uint64_t h = (uint64_t)(uint32_t)s->node << 32 | (uint32_t)s->glob;

	h = (h ^ (uint64_t)s->access << 61 ^ (uint64_t)s->unseen << 57 ^ (uint64_t)s->closed << 55 ^
	     (uint64_t)s->bare << 53) *
	    UINT64_C(0x9e3779b97f4a7c15);
	return (size_t)(h >> 32);
}

/* Locked, or alone. */
static int grow_hash(struct policy *p)
{
	size_t n = p->nhash ? p->nhash * 2 : 64;
	int *more = calloc(n, sizeof(*more));

	if (!more)
		return -ENOMEM;
	for (int i = 0; i < p->nstates; i++) {
		size_t at = hash_state(policy_state(p, i)) & (n - 1);

		while (more[at])
			at = (at + 1) & (n - 1);
		more[at] = i + 1;
	}
	free(p->by_hash);
	p->by_hash = more;
	p->nhash = n;
	return 0;
}

/* The state's number; -E2BIG: there are as many as there may be. */
static int intern_locked(struct policy *p, const struct pstate *s)
{
	struct pstate *chunk;
	size_t at;

	if ((size_t)p->nstates * 2 >= p->nhash && grow_hash(p) < 0)
		return -ENOMEM;
	at = hash_state(s) & (p->nhash - 1);
	for (; p->by_hash[at]; at = (at + 1) & (p->nhash - 1))
		if (same(policy_state(p, p->by_hash[at] - 1), s))
			return p->by_hash[at] - 1;
	if (p->nstates == POLICY_STATES_MAX)
		return -E2BIG;
	chunk = atomic_load_explicit(&p->chunks[p->nstates / CHUNK], memory_order_relaxed);
	if (!chunk) {
		chunk = calloc(CHUNK, sizeof(*chunk));
		if (!chunk)
			return -ENOMEM;
		atomic_store_explicit(&p->chunks[p->nstates / CHUNK], chunk, memory_order_release);
	}
	chunk += p->nstates % CHUNK;
	*chunk = *s;
	p->by_hash[at] = ++p->nstates;
	return p->nstates - 1;
}

static int intern(struct policy *p, struct pstate *s)
{
	int id;

	simplify(p, s);
	(void)pthread_mutex_lock(&p->lock);
	id = intern_locked(p, s);
	(void)pthread_mutex_unlock(&p->lock);
	return id;
}

/* ---- from a directory to a name ---- */

int policy_protected(const struct policy *p, const struct pstate *s, const char *name, size_t len)
{
	const struct pnode *n = s->node == NO_NODE ? NULL : &p->nodes[s->node];
	bool top = n && n->access == POLICY_WRITE && !n->bare;

	if (!p->rules.names || s->access != POLICY_WRITE || !(top || (p->rules.deep && !s->bare)))
		return -1;
	for (int i = 0; p->rules.names[i]; i++)
		if (fold_same(p->rules.names[i], name, len))
			return i;
	return -1;
}

/* A rule names the place, which was given what its directory has. */
static void take_rule(const struct policy *p, const struct pnode *n, struct pstate *s)
{
	(void)p;
	if (n->access == POLICY_NONE || (s->closed && n->access != POLICY_WRITE))
		return;
	s->access = (uint8_t)n->access;
	s->unseen = (uint8_t)n->unseen;
	s->bare = n->bare;
	s->closed = false;
}

int policy_child(struct policy *p, int state, const char *name, size_t len)
{
	struct pstate *from = (struct pstate *)(uintptr_t)policy_state(p, state);
	struct pstate s;
	uint64_t memo;
	int glob, id;
	bool prot, plain;

	if (from->still)
		return state;
	glob = from->glob == GLOB_DEAD ? GLOB_DEAD : glob_step(p->globs, from->glob, name, len);
	s = (struct pstate){.node = policy_node_child(p, from->node, name, len),
			    .glob = glob,
			    .access = from->access,
			    .unseen = from->unseen,
			    .closed = from->closed,
			    .bare = from->bare};
	prot = policy_protected(p, from, name, len) >= 0;
	plain = s.node == NO_NODE && !prot;
	memo = atomic_load_explicit(&from->memo, memory_order_acquire);
	if (plain && memo && memo >> 32 == (uint64_t)glob)
		return (int)(memo & UINT32_MAX) - 1;
	if (p->globs && glob_hit(p->globs, glob) != GLOB_NO_HIT) {
		s.access = s.unseen = POLICY_DENY;
		s.closed = true;
	} else if (s.node != NO_NODE && p->nodes[s.node].access != POLICY_NONE) {
		take_rule(p, &p->nodes[s.node], &s);
	} else if (prot) {
		s.access = POLICY_READ;
	}
	id = intern(p, &s);
	/* Memory may be there the next time; room for states will not. */
	if (id == -ENOMEM)
		return STATE_FULL;
	if (id < 0)
		id = STATE_FULL;
	if (plain)
		atomic_store_explicit(&from->memo, (uint64_t)glob << 32 | (uint32_t)(id + 1),
				      memory_order_release);
	return id;
}

/* ---- queries ---- */

bool policy_trivial(const struct policy *p)
{
	return p->trivial;
}

bool policy_carves(const struct policy *p)
{
	return p->carves;
}

int policy_root(const struct policy *p)
{
	return p->root;
}

const struct policy_rules *policy_rules_of(const struct policy *p)
{
	return &p->rules;
}

unsigned policy_may(const struct policy *p, int state)
{
	return policy_state(p, state)->may;
}

bool policy_hides(const struct policy *p, int state)
{
	return p->rules.hide || policy_state(p, state)->access == POLICY_NONE;
}

bool policy_shows(const struct policy *p, int dir, int child)
{
	if (policy_may(p, child) & POLICY_MAY_PASS)
		return true;
	return policy_may(p, dir) & POLICY_MAY_READ && !policy_hides(p, child);
}

bool policy_pinned(const struct policy *p, int state, const char *name, size_t len)
{
	return policy_node_child(p, policy_state(p, state)->node, name, len) != NO_NODE;
}

bool policy_same_below(const struct policy *p, int a, int b)
{
	(void)p;
	return a == b;
}

static int leaf_of(int access)
{
	return access;
}

int policy_leaf(enum policy_access access)
{
	return leaf_of((int)access);
}

int policy_meet(const struct policy *p, int a, int b)
{
	int x = policy_state(p, a)->access, y = policy_state(p, b)->access;

	return a == b ? a : leaf_of(x < y ? x : y);
}

int policy_unseen(const struct policy *p, int state)
{
	const struct pstate *s = policy_state(p, state);

	return s->unseen < s->access ? leaf_of(s->unseen) : state;
}

static int node_path(const struct policy *p, int node, struct buf *out)
{
	const struct pnode *n = &p->nodes[node];
	int r;

	if (node == 0)
		return 0;
	r = node_path(p, n->parent, out);
	if (r == 0)
		r = buf_put(out, "/", 1);
	return r < 0 ? r : buf_put(out, n->name, n->len);
}

int policy_writable(const struct policy *p, int (*fn)(void *arg, const char *path), void *arg)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->nnodes; i++) {
		cleanup_buf struct buf b = {0};

		if (p->nodes[i].access != POLICY_WRITE)
			continue;
		r = node_path(p, (int)i, &b);
		if (r == 0)
			r = fn(arg, b.data ? (const char *)b.data : "/");
	}
	return r;
}

/* ---- making ---- */

static int first_states(struct policy *p)
{
	const struct pnode *n = &p->nodes[0];
	struct pstate root = {.node = 0,
			      .glob = p->globs ? glob_start(p->globs) : GLOB_DEAD,
			      .access = (uint8_t)n->access,
			      .unseen = (uint8_t)n->unseen,
			      .bare = n->bare};

	for (int i = POLICY_NONE; i <= POLICY_WRITE; i++) {
		struct pstate leaf = {.node = NO_NODE,
				      .access = (uint8_t)i,
				      .unseen = (uint8_t)i,
				      .bare = i == POLICY_WRITE && p->rules.deep};

		if (intern(p, &leaf) != i)
			return -ENOMEM;
	}
	p->root = intern(p, &root);
	return p->root < 0 ? p->root : 0;
}

int policy_new(const struct policy_rules *rules, struct diag *diag, struct policy **ret)
{
	const struct policy_rules all = {.otherwise = POLICY_WRITE};
	struct policy *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	(void)pthread_mutex_init(&p->lock, NULL);
	r = policy_rules_copy(rules ? rules : &all, &p->rules);
	for (size_t i = 0; r == 0 && p->rules.names && p->rules.names[i]; i++)
		fold_plain(p->rules.names[i]);
	if (r == 0)
		r = policy_compile(p, diag);
	if (r == 0)
		r = first_states(p);
	if (r < 0) {
		policy_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->nnodes; i++)
		free(p->nodes[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(p->chunks); i++)
		free(atomic_load_explicit(&p->chunks[i], memory_order_relaxed));
	free(p->nodes);
	free(p->slots);
	free(p->by_hash);
	glob_free(p->globs);
	policy_rules_release(&p->rules);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}
