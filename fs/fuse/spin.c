#include "fs/fuse/spin.h"

#include <string.h>

enum {
	FIRST = 128,    /* requests before the first trial */
	PERIOD = 1024,  /* between trials */
	TRIAL = 64,     /* of a trial */
	SKIP = 16,      /* of these, those that are not counted */
	TRIAL_MIN = 32, /* measured gaps below which a trial says nothing */
	MISSES_MAX = 6, /* 2^6 close requests are asked for at most */
};
#define IGNORE_NS UINT64_C(5000000) /* a longer gap is the client's thinking, not ours */
/* Closer than this is a stream; above what two wakeups cost, so that a stream served by blocking
 * counts as one. */
#define CLOSE_NS  UINT64_C(500000)

static void use(struct spin *s, enum spin_way way, unsigned requests)
{
	s->skip = way == s->now ? 0 : SKIP;
	s->now = way;
	s->left = requests + s->skip;
	s->sum_ns[way] = s->n[way] = 0;
	s->misses = s->need = 0;
}

void spin_init(struct spin *s, uint64_t max_ns)
{
	memset(s, 0, sizeof(*s));
	s->max_ns = max_ns;
	s->may[SPIN_BLOCK] = true;
	s->may[SPIN_READ] = max_ns > 0;
	s->best = s->now = s->tried = max_ns > 0 ? SPIN_READ : SPIN_BLOCK;
	s->left = FIRST;
	s->need = 1;
}

void spin_allow_beside(struct spin *s)
{
	s->may[SPIN_BESIDE] = s->max_ns > 0;
}

void spin_refuse_beside(struct spin *s)
{
	s->may[SPIN_BESIDE] = false;
	if (s->best == SPIN_BESIDE)
		s->best = SPIN_READ;
	if (s->now == SPIN_BESIDE)
		use(s, s->best, PERIOD);
}

void spin_always(struct spin *s, enum spin_way way)
{
	s->always = true;
	s->best = s->now = way;
}

enum spin_way spin_wanted(const struct spin *s)
{
	return s->need ? SPIN_BLOCK : s->now;
}

/* A quiet session must burn nothing: each fruitless spin doubles the stream that earns the next. */
void spin_expired(struct spin *s)
{
	if (s->misses < MISSES_MAX)
		s->misses++;
	s->need = 1u << s->misses;
}

static uint64_t mean(const struct spin *s, enum spin_way way)
{
	return s->n[way] ? s->sum_ns[way] / s->n[way] : UINT64_MAX;
}

/* The next way after the one that was tried last, other than the best. */
static enum spin_way next_trial(struct spin *s)
{
	for (unsigned i = 1; i <= SPIN_WAYS; i++) {
		enum spin_way way = (s->tried + i) % SPIN_WAYS;

		if (s->may[way] && way != s->best)
			return s->tried = way;
	}
	return s->best;
}

static void turn(struct spin *s)
{
	enum spin_way other = s->now;

	if (other == s->best) {
		use(s, next_trial(s), TRIAL);
		return;
	}
	if (s->n[other] >= TRIAL_MIN && s->n[s->best] >= TRIAL_MIN &&
	    mean(s, other) < mean(s, s->best) / 10 * 9)
		s->best = other;
	use(s, s->best, PERIOD);
}

static void count(struct spin *s, uint64_t gap)
{
	if (s->skip) {
		s->skip--;
	} else if (gap < IGNORE_NS) {
		s->sum_ns[s->now] += gap;
		s->n[s->now]++;
	}
}

/* A trial that shows soon that it costs twice as much is over. */
static bool is_hopeless(const struct spin *s)
{
	return s->now != s->best && s->n[s->now] == TRIAL_MIN && s->n[s->best] >= TRIAL_MIN &&
	       mean(s, s->now) / 2 > mean(s, s->best);
}

void spin_arrived(struct spin *s, uint64_t now_ns, bool spun)
{
	uint64_t gap = now_ns - s->last_ns;
	bool first = !s->last_ns;

	s->last_ns = now_ns;
	if (spun)
		s->misses = 0;
	if (first || !s->max_ns)
		return;
	if (gap < CLOSE_NS && s->need)
		s->need--;
	count(s, gap);
	if (!s->always && (!--s->left || is_hopeless(s)))
		turn(s);
}
