#include "fs/fuse/spin.h"

#include <string.h>

enum {
	PERIOD = 1024,  /* requests between trials */
	TRIAL = 64,     /* requests of a trial */
	TRIAL_MIN = 32, /* measured gaps below which a trial says nothing */
	MISSES_MAX = 6, /* 2^6 close requests are asked for at most */
};
#define IGNORE_NS UINT64_C(5000000) /* a longer gap is the client's thinking, not ours */
/* Closer than this is a stream; above what two wakeups cost, so that a stream served by blocking
 * counts as one. */
#define CLOSE_NS  UINT64_C(500000)

void spin_init(struct spin *s, uint64_t max_ns, bool always)
{
	memset(s, 0, sizeof(*s));
	s->max_ns = max_ns;
	s->always = always;
	s->best = s->now = max_ns > 0;
	s->left = PERIOD;
	s->need = 1;
}

bool spin_wanted(const struct spin *s)
{
	return s->max_ns && s->now && !s->need;
}

/* A quiet session must burn nothing: each fruitless spin doubles the stream that earns the next. */
void spin_expired(struct spin *s)
{
	if (s->misses < MISSES_MAX)
		s->misses++;
	s->need = 1u << s->misses;
}

static uint64_t mean(const struct spin *s, bool way)
{
	return s->n[way] ? s->sum_ns[way] / s->n[way] : UINT64_MAX;
}

static void use(struct spin *s, bool way, unsigned requests)
{
	s->now = way;
	s->left = requests;
	s->sum_ns[way] = s->n[way] = 0;
	s->misses = s->need = 0;
}

static void turn(struct spin *s)
{
	bool other = !s->best;

	if (s->now == s->best) {
		use(s, other, TRIAL);
		return;
	}
	if (s->n[other] >= TRIAL_MIN && s->n[s->best] >= TRIAL_MIN &&
	    mean(s, other) < mean(s, s->best) / 10 * 9)
		s->best = other;
	use(s, s->best, PERIOD);
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
	if (gap < IGNORE_NS) {
		s->sum_ns[s->now] += gap;
		s->n[s->now]++;
	}
	if (!s->always && !--s->left)
		turn(s);
}
