/* Rules to a trie of components, with what follows for each from those below. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/policy_internal.h"

static uint32_t hash_name(int parent, const char *name, size_t len)
{
	uint32_t h = 2166136261u ^ (uint32_t)parent * 2654435761u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 16777619u;
	return h;
}

int policy_node_child(const struct policy *p, int node, const char *name, size_t len)
{
	uint32_t h;

	if (node == NO_NODE || !p->nodes[node].nchildren)
		return NO_NODE;
	h = hash_name(node, name, len);
	for (size_t at = h % p->nslots; p->slots[at]; at = (at + 1) % p->nslots) {
		const struct pnode *n = &p->nodes[p->slots[at]];

		if (n->hash == h && n->parent == node && n->len == len &&
		    !memcmp(n->name, name, len))
			return p->slots[at];
	}
	return NO_NODE;
}

/* ---- building ---- */

static void slot_put(struct policy *p, int node)
{
	size_t at = p->nodes[node].hash % p->nslots;

	while (p->slots[at])
		at = (at + 1) % p->nslots;
	p->slots[at] = node;
}

/* Room for all: a component needs two bytes of a rule's text. */
static int make_room(struct policy *p)
{
	size_t max = 2;

	for (size_t i = 0; i < p->rules.n; i++)
		for (const char *s = p->rules.v[i].text; *s; s++)
			max += *s == '/';
	p->nodes = calloc(max, sizeof(*p->nodes));
	p->nslots = max * 2;
	p->slots = calloc(p->nslots, sizeof(*p->slots));
	if (!p->nodes || !p->slots)
		return -ENOMEM;
	p->nodes[0] = (struct pnode){.parent = NO_NODE, .rule = -1};
	p->nnodes = 1;
	return 0;
}

static int node_add(struct policy *p, int parent, const char *name, size_t len)
{
	int id = (int)p->nnodes;
	char *copy = strndup(name, len);

	if (!copy)
		return -ENOMEM;
	p->nodes[p->nnodes++] = (struct pnode){.parent = parent,
					       .len = len,
					       .name = copy,
					       .hash = hash_name(parent, name, len),
					       .rule = -1};
	p->nodes[parent].nchildren++;
	slot_put(p, id);
	return id;
}

/* Of equally long rules deny counts before write, and write before read. */
static int weight(enum policy_access a)
{
	return a == POLICY_DENY ? 3 : a == POLICY_WRITE ? 2 : a == POLICY_READ ? 1 : 0;
}

static void node_rule(struct pnode *n, const struct policy_rule *x, int rule)
{
	if (x->access == POLICY_WRITE && n->access == POLICY_WRITE)
		n->bare = n->bare && x->bare;
	if (x->access == n->access)
		n->solid = n->solid && x->solid;
	if (weight(x->access) <= weight(n->access))
		return;
	n->access = x->access;
	n->bare = x->bare;
	n->solid = x->solid;
	n->rule = rule;
}

static int add_path(struct policy *p, const char *path, const struct policy_rule *x, int rule)
{
	const char *at = path, *part;
	size_t len;
	int node = 0;

	while (policy_component(&at, &part, &len)) {
		int next = policy_node_child(p, node, part, len);

		if (next == NO_NODE)
			next = node_add(p, node, part, len);
		if (next < 0)
			return next;
		node = next;
	}
	node_rule(&p->nodes[node], x, rule);
	return 0;
}

/* A pattern with nothing special in it is a path. */
static int add_glob(struct policy *p, const struct policy_rule *x, int rule, struct diag *diag)
{
	int r = 0;

	if (!glob_special(x->text))
		return add_path(p, x->text, x, rule);
	if (!p->globs)
		r = glob_new(&p->globs);
	return r < 0 ? r : glob_add(p->globs, x->text, rule, diag);
}

/* ---- what follows ---- */

/* Nodes stand behind those above them. */
static void look_below(struct policy *p)
{
	for (size_t i = p->nnodes; i-- > 1;) {
		const struct pnode *n = &p->nodes[i];
		struct pnode *up = &p->nodes[n->parent];

		up->grants = up->grants || n->grants || n->access >= POLICY_READ;
		up->writes = up->writes || n->writes || n->access == POLICY_WRITE;
		up->narrows = up->narrows || n->narrows || n->access == POLICY_DENY ||
			      n->access == POLICY_READ;
	}
}

static bool protects(const struct policy *p, const struct pnode *n)
{
	return p->rules.names && n->access == POLICY_WRITE && !n->bare;
}

static void lower(enum policy_access *a, enum policy_access to)
{
	if (to < *a)
		*a = to;
}

/* The last node on the way that a pattern's first, plain components go. */
static int glob_way(const struct policy *p, const char *pattern)
{
	const char *at = pattern, *part;
	size_t len;
	int node = 0;

	while (policy_component(&at, &part, &len)) {
		cleanup_free char *one = strndup(part, len), *plain = NULL;
		int next;

		plain = one ? glob_literal(one) : NULL;
		next = plain ? policy_node_child(p, node, plain, strlen(plain)) : NO_NODE;
		if (next == NO_NODE)
			break;
		node = next;
	}
	return node;
}

/* What follows for each node from those above it, which stand before it. */
struct above {
	int grant; /* that the node comes under, itself perhaps; 0 at the latest */
	int glob;  /* the automaton's state */
	bool solid;
};

static void fill_above(const struct policy *p, struct above *v)
{
	v[0] = (struct above){.glob = p->globs ? glob_start(p->globs) : GLOB_DEAD,
			      .solid = p->nodes[0].solid};
	for (size_t i = 1; i < p->nnodes; i++) {
		const struct pnode *n = &p->nodes[i];

		v[i] = v[n->parent];
		if (n->access >= POLICY_READ) {
			v[i].grant = (int)i;
			v[i].solid = n->solid;
		}
		if (p->globs)
			v[i].glob = glob_step(p->globs, v[n->parent].glob, n->name, n->len);
	}
}

/* A pattern says what its plain part is in; and wherever it can match below a grant, something there may be meant. */
static void unseen_patterns(struct policy *p, const struct above *v)
{
	for (size_t i = 0; i < p->rules.n; i++) {
		const struct policy_rule *x = &p->rules.v[i];
		int way;

		if (x->kind != POLICY_GLOB || !glob_special(x->text))
			continue;
		way = glob_way(p, x->text);
		p->nodes[way].way = true;
		lower(&p->nodes[v[way].grant].unseen, POLICY_DENY);
	}
	for (size_t i = 0; i < p->nnodes; i++) {
		struct pnode *n = &p->nodes[i];

		n->way = n->way || (i && p->nodes[n->parent].way);
		if (n->way && !v[i].solid && glob_live(p->globs, v[i].glob))
			lower(&n->unseen, POLICY_DENY);
	}
}

static int find_unseen(struct policy *p)
{
	cleanup_free struct above *v = calloc(p->nnodes, sizeof(*v));

	if (!v)
		return -ENOMEM;
	fill_above(p, v);
	for (size_t i = 0; i < p->nnodes; i++) {
		p->nodes[i].unseen = p->nodes[i].access;
		if (protects(p, &p->nodes[i]))
			lower(&p->nodes[i].unseen, POLICY_READ);
	}
	for (size_t i = 1; i < p->nnodes; i++) {
		const struct pnode *n = &p->nodes[i];

		if (n->access == POLICY_DENY || n->access == POLICY_READ)
			lower(&p->nodes[v[n->parent].grant].unseen, n->access);
	}
	if (p->globs)
		unseen_patterns(p, v);
	return 0;
}

/* Nothing is narrowed anywhere: then names are not protected either. */
static bool all_writable(const struct policy *p)
{
	return p->nodes[0].access == POLICY_WRITE && !p->nodes[0].narrows && !p->globs;
}

static bool find_carves(const struct policy *p)
{
	for (size_t i = 0; i < p->nnodes; i++) {
		const struct pnode *n = &p->nodes[i];

		if (n->access == POLICY_WRITE && (n->narrows || p->globs || protects(p, n)))
			return true;
	}
	return false;
}

static void names_drop(struct policy_rules *r)
{
	for (size_t i = 0; r->names && r->names[i]; i++)
		free(r->names[i]);
	free(r->names);
	r->names = NULL;
}

int policy_compile(struct policy *p, struct diag *diag)
{
	int r = make_room(p);

	for (size_t i = 0; r == 0 && i < p->rules.n; i++) {
		const struct policy_rule *x = &p->rules.v[i];

		r = x->kind == POLICY_GLOB ? add_glob(p, x, (int)i, diag)
					   : add_path(p, x->text, x, (int)i);
	}
	if (r == 0 && p->globs)
		r = glob_seal(p->globs);
	if (r < 0)
		return r;
	if (p->nodes[0].access == POLICY_NONE) {
		p->nodes[0].access = p->rules.otherwise;
		p->nodes[0].bare = true;
	}
	look_below(p);
	if (all_writable(p))
		names_drop(&p->rules);
	r = find_unseen(p);
	p->trivial = all_writable(p);
	p->carves = find_carves(p);
	return r;
}
