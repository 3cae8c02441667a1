/* The automaton: sets of positions, made states when they are first met. A component is read byte by byte and
 * ends with a slash; the states in which one ends are those of places. */
#include <stdlib.h>
#include <string.h>

#include "policy/glob_internal.h"

#define WORDS_MAX (GLOB_POSITIONS_MAX / 64)
/* The last ones are kept for places: inside of names one can do without. */
#define INNER_MAX (GLOB_STATES_MAX / 4 * 3)

static bool has(const uint64_t *set, size_t i)
{
	return set[i >> 6] >> (i & 63) & 1;
}

/* With what can be reached from it without a byte. */
static void reach(const struct glob_set *g, uint64_t *set, size_t i)
{
	for (;;) {
		set[i >> 6] |= UINT64_C(1) << (i & 63);
		if (g->toks[i].kind == TOK_STAR)
			i++;
		else if (g->toks[i].kind == TOK_COMPS)
			i += 2;
		else
			return;
	}
}

static void move_one(const struct glob_set *g, size_t i, uint8_t byte, uint64_t *to)
{
	const struct tok *t = &g->toks[i];
	bool slash = byte == '/';

	switch ((enum tok_kind)t->kind) {
	case TOK_BYTE:
		if (byte == t->byte && !slash)
			reach(g, to, i + 1);
		break;
	case TOK_ANY:
		if (!slash)
			reach(g, to, i + 1);
		break;
	case TOK_SET:
		if (!slash && has(t->set, byte))
			reach(g, to, i + 1);
		break;
	case TOK_STAR:
		if (!slash)
			reach(g, to, i);
		break;
	case TOK_SEP:
		if (slash)
			reach(g, to, i + 1);
		break;
	case TOK_COMPS:
		if (slash)
			reach(g, to, i);
		else
			reach(g, to, i + 1);
		break;
	case TOK_COMP:
		reach(g, to, slash ? i - 1 : i);
		break;
	case TOK_END:
		break;
	}
}

static void move(const struct glob_set *g, const uint64_t *from, uint8_t byte, uint64_t *to)
{
	memset(to, 0, g->words * sizeof(*to));
	for (size_t w = 0; w < g->words; w++)
		for (uint64_t left = from[w]; left; left &= left - 1)
			move_one(g, w * 64 + (size_t)__builtin_ctzll(left), byte, to);
}

/* ---- states ---- */

static uint64_t hash_set(const uint64_t *set, size_t words)
{
	uint64_t h = UINT64_C(0x9e3779b97f4a7c15);

	for (size_t i = 0; i < words; i++) {
		h = (h ^ set[i]) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 32;
	}
	return h;
}

static struct gstate *state_at(const struct glob_set *g, int id)
{
	return atomic_load_explicit(&g->states[id], memory_order_acquire);
}

static struct gstate *state_new(const struct glob_set *g, const uint64_t *set, uint64_t hash)
{
	size_t head = sizeof(struct gstate) + g->nclasses * sizeof(int);
	struct gstate *s;

	head = (head + 7) & ~(size_t)7;
	s = malloc(head + g->words * sizeof(*set));
	if (!s)
		return NULL;
	s->hash = hash;
	s->hit = GLOB_NO_HIT;
	s->live = false;
	s->set = (uint64_t *)(void *)((uint8_t *)s + head);
	memcpy(s->set, set, g->words * sizeof(*set));
	for (unsigned c = 0; c < g->nclasses; c++)
		atomic_init(&s->next[c], GLOB_UNSET);
	for (size_t i = 0; i < g->ntoks; i++) {
		if (!has(set, i))
			continue;
		if (g->toks[i].kind != TOK_END)
			s->live = true;
		else if (s->hit == GLOB_NO_HIT || g->toks[i].rule < s->hit)
			s->hit = g->toks[i].rule;
	}
	return s;
}

/* Locked, or alone. GLOB_FULL: there is no room below @max, or no memory. */
static int intern(struct glob_set *g, const uint64_t *set, int max)
{
	uint64_t h = hash_set(set, g->words);
	size_t at = h % (GLOB_STATES_MAX * 2);
	struct gstate *s;

	for (; g->slots[at]; at = (at + 1) % (GLOB_STATES_MAX * 2)) {
		s = state_at(g, g->slots[at]);
		if (s->hash == h && !memcmp(s->set, set, g->words * sizeof(*set)))
			return g->slots[at];
	}
	if (g->nstates >= max)
		return GLOB_FULL;
	s = state_new(g, set, h);
	if (!s)
		return GLOB_FULL;
	atomic_store_explicit(&g->states[g->nstates], s, memory_order_release);
	g->slots[at] = g->nstates;
	return g->nstates++;
}

static bool empty(const uint64_t *set, size_t words)
{
	for (size_t i = 0; i < words; i++)
		if (set[i])
			return false;
	return true;
}

static int state_of(struct glob_set *g, const uint64_t *set, int max)
{
	int id;

	if (empty(set, g->words))
		return GLOB_DEAD;
	(void)pthread_mutex_lock(&g->lock);
	id = intern(g, set, max);
	(void)pthread_mutex_unlock(&g->lock);
	return id;
}

/* From the middle of @name without states: there are too many. */
static int simulate(struct glob_set *g, const struct gstate *from, const uint8_t *name, size_t len)
{
	uint64_t a[WORDS_MAX], b[WORDS_MAX];

	memcpy(a, from->set, g->words * sizeof(*a));
	for (size_t i = 0; i < len; i++) {
		move(g, a, name[i], b);
		memcpy(a, b, g->words * sizeof(*a));
	}
	move(g, a, '/', b);
	return state_of(g, b, GLOB_STATES_MAX);
}

static int extend(struct glob_set *g, struct gstate *s, unsigned c)
{
	bool place = g->rep[c] == '/';
	uint64_t set[WORDS_MAX];
	int id;

	move(g, s->set, g->rep[c], set);
	id = state_of(g, set, place ? GLOB_STATES_MAX : INNER_MAX);
	/* Without memory now there may be some later, and a name may be followed without a state. */
	if (id != GLOB_FULL)
		atomic_store_explicit(&s->next[c], id, memory_order_release);
	return id;
}

int glob_step(struct glob_set *g, int state, const char *name, size_t len)
{
	const uint8_t *p = (const uint8_t *)name;
	int id = state;

	if (id == GLOB_DEAD || id == GLOB_FULL)
		return id;
	for (size_t i = 0; i <= len; i++) {
		unsigned c = g->cls[i < len ? p[i] : '/'];
		struct gstate *s = state_at(g, id);
		int next = atomic_load_explicit(&s->next[c], memory_order_acquire);

		if (next == GLOB_UNSET)
			next = extend(g, s, c);
		if (next == GLOB_FULL)
			return simulate(g, s, p + i, len - i);
		if (next == GLOB_DEAD)
			return GLOB_DEAD;
		id = next;
	}
	return id;
}

int glob_hit(const struct glob_set *g, int state)
{
	if (state == GLOB_DEAD)
		return GLOB_NO_HIT;
	return state == GLOB_FULL ? GLOB_FULL_HIT : state_at(g, state)->hit;
}

bool glob_live(const struct glob_set *g, int state)
{
	if (state == GLOB_DEAD || state == GLOB_FULL)
		return false;
	return state_at(g, state)->live;
}

int glob_start(const struct glob_set *g)
{
	return g->root;
}

/* ---- making ---- */

/* Bytes that every token treats alike are one class: split the classes by one set of bytes. */
static void refine(struct glob_set *g, const uint64_t set[4])
{
	int split[GLOB_CLASSES_MAX];
	bool in[GLOB_CLASSES_MAX] = {false}, out[GLOB_CLASSES_MAX] = {false};
	unsigned n = g->nclasses;

	for (unsigned b = 0; b < 256; b++)
		*(has(set, b) ? &in[g->cls[b]] : &out[g->cls[b]]) = true;
	for (unsigned c = 0; c < g->nclasses; c++)
		split[c] = in[c] && out[c] ? (int)n++ : -1;
	for (unsigned b = 0; b < 256; b++)
		if (has(set, b) && split[g->cls[b]] >= 0)
			g->cls[b] = (uint8_t)split[g->cls[b]];
	g->nclasses = n;
}

static void refine_byte(struct glob_set *g, uint8_t byte)
{
	uint64_t set[4] = {0};

	set[byte >> 6] = UINT64_C(1) << (byte & 63);
	refine(g, set);
}

int glob_seal(struct glob_set *g)
{
	uint64_t set[WORDS_MAX] = {0};

	g->words = (g->ntoks + 63) / 64;
	g->nclasses = 1;
	refine_byte(g, '/');
	for (size_t i = 0; i < g->ntoks; i++) {
		if (g->toks[i].kind == TOK_BYTE)
			refine_byte(g, g->toks[i].byte);
		else if (g->toks[i].kind == TOK_SET)
			refine(g, g->toks[i].set);
	}
	for (unsigned b = 256; b-- > 0;)
		g->rep[g->cls[b]] = (uint8_t)b;
	for (size_t i = 0; i < g->ntoks; i++)
		if (i == 0 || g->toks[i - 1].kind == TOK_END)
			reach(g, set, i);
	g->root = g->ntoks ? state_of(g, set, GLOB_STATES_MAX) : GLOB_DEAD;
	return g->root == GLOB_FULL ? -ENOMEM : 0;
}

int glob_new(struct glob_set **ret)
{
	struct glob_set *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	(void)pthread_mutex_init(&g->lock, NULL);
	g->nstates = GLOB_FULL + 1;
	*ret = g;
	return 0;
}

void glob_free(struct glob_set *g)
{
	if (!g)
		return;
	for (int i = GLOB_FULL + 1; i < g->nstates; i++)
		free(state_at(g, i));
	free(g->toks);
	(void)pthread_mutex_destroy(&g->lock);
	free(g);
}
