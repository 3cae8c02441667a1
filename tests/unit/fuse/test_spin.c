/* The decision to spin, with a made-up clock. */
#include "fs/fuse/spin.h"

#include <string.h>

#include "tests/lib/tap.h"

#define US UINT64_C(1000)

/* A client that asks again after so many us, by how it is waited for. */
struct client {
	uint64_t us[SPIN_WAYS];
};

#define CLIENT(block, read, beside) (&(struct client){{block, read, beside}})

/* @n requests; how many of them were met in each way is @met. */
static void stream(struct spin *s, uint64_t *now, const struct client *c, int n, int met[SPIN_WAYS])
{
	memset(met, 0, SPIN_WAYS * sizeof(*met));
	for (int i = 0; i < n; i++) {
		enum spin_way way = spin_wanted(s);
		uint64_t gap = c->us[way] * US;

		if (way == SPIN_READ && gap > s->max_ns) {
			spin_expired(s);
			gap = c->us[SPIN_BLOCK] * US;
			way = SPIN_BLOCK;
		}
		*now += gap;
		spin_arrived(s, *now, way != SPIN_BLOCK);
		met[way]++;
	}
}

static void test_choice(void)
{
	struct spin s;
	uint64_t now = 1;
	int met[SPIN_WAYS];

	spin_init(&s, 50 * US);
	eq_int(spin_wanted(&s), SPIN_BLOCK, "a quiet session blocks");
	stream(&s, &now, CLIENT(120, 20, 1), 10, met);
	eq_int(spin_wanted(&s), SPIN_READ, "a stream is worth a spin");
	stream(&s, &now, CLIENT(120, 20, 1), 20000, met);
	ok(met[SPIN_READ] > 18000, "spins where that is faster (%d of 20000)", met[SPIN_READ]);
	ok(met[SPIN_BLOCK] > 500, "and still tries the other way at times");
	eq_int(met[SPIN_BESIDE], 0, "but none that cannot be had");

	stream(&s, &now, CLIENT(20, 40, 1), 5000, met);
	stream(&s, &now, CLIENT(20, 40, 1), 20000, met);
	ok(met[SPIN_READ] < 2000, "blocks where that is faster (%d of 20000)", met[SPIN_READ]);
	ok(met[SPIN_READ] > 500, "and still tries to spin at times");

	stream(&s, &now, CLIENT(120, 20, 1), 5000, met);
	stream(&s, &now, CLIENT(120, 20, 1), 20000, met);
	ok(met[SPIN_READ] > 18000, "changes back when the machine does (%d)", met[SPIN_READ]);

	stream(&s, &now, CLIENT(20, 19, 1), 5000, met);
	stream(&s, &now, CLIENT(19, 20, 1), 20000, met);
	ok(met[SPIN_READ] > 18000, "5 %% is no reason to change (%d)", met[SPIN_READ]);
}

static void test_beside(void)
{
	struct spin s;
	uint64_t now = 1;
	int met[SPIN_WAYS];

	spin_init(&s, 50 * US);
	spin_allow_beside(&s);
	stream(&s, &now, CLIENT(120, 20, 8), 1000, met);
	ok(met[SPIN_BESIDE] > 600, "the third way is found early (%d of 1000)", met[SPIN_BESIDE]);
	stream(&s, &now, CLIENT(120, 20, 8), 20000, met);
	ok(met[SPIN_BESIDE] > 17000, "and kept (%d of 20000)", met[SPIN_BESIDE]);
	ok(met[SPIN_BLOCK] > 300 && met[SPIN_READ] > 300, "both others are tried at times (%d, %d)",
	   met[SPIN_BLOCK], met[SPIN_READ]);
	stream(&s, &now, CLIENT(8, 20, 30), 5000, met);
	stream(&s, &now, CLIENT(8, 20, 30), 20000, met);
	ok(met[SPIN_BLOCK] > 17000, "left where another is faster (%d)", met[SPIN_BLOCK]);

	stream(&s, &now, CLIENT(120, 20, 8), 5000, met);
	spin_refuse_beside(&s);
	stream(&s, &now, CLIENT(120, 20, 8), 5000, met);
	eq_int(met[SPIN_BESIDE], 0, "and given up where it can be had no more");
	ok(met[SPIN_READ] > 4000, "for the next best (%d)", met[SPIN_READ]);
}

/* What costs far more is not tried for as long as what may be worth it. */
static void test_hopeless(void)
{
	struct spin s;
	uint64_t now = 1;
	int bad[SPIN_WAYS], fair[SPIN_WAYS];

	spin_init(&s, 50 * US);
	spin_allow_beside(&s);
	stream(&s, &now, CLIENT(22, 20, 200), 20000, bad);
	spin_init(&s, 50 * US);
	spin_allow_beside(&s);
	stream(&s, &now, CLIENT(22, 20, 22), 20000, fair);
	ok(bad[SPIN_BESIDE] > 200 && bad[SPIN_BESIDE] < fair[SPIN_BESIDE] * 3 / 4,
	   "a way that is hopeless is left sooner (%d, %d)", bad[SPIN_BESIDE], fair[SPIN_BESIDE]);
}

/* What a change costs once is not held against it. */
static void test_change(void)
{
	struct spin s;
	uint64_t now = 1;
	int beside = 0;

	spin_init(&s, 50 * US);
	spin_allow_beside(&s);
	for (int i = 0, since = 0; i < 20000; i++) {
		enum spin_way way = spin_wanted(&s);

		since = way == SPIN_BESIDE ? since + 1 : 0;
		now += (way != SPIN_BESIDE ? 20 : since < 10 ? 400 : 8) * US;
		spin_arrived(&s, now, way != SPIN_BLOCK);
		beside += way == SPIN_BESIDE;
	}
	ok(beside > 17000, "a slow beginning is not counted (%d)", beside);
}

static void test_quiet(void)
{
	struct spin s;
	uint64_t now = 1;
	int expired = 0, met[SPIN_WAYS];

	spin_init(&s, 50 * US);
	stream(&s, &now, CLIENT(120, 20, 1), 10, met);
	for (int i = 0; i < 1000; i++) { /* a request every 2 ms */
		if (spin_wanted(&s) != SPIN_BLOCK) {
			spin_expired(&s);
			expired++;
		}
		now += 2000 * US;
		spin_arrived(&s, now, false);
	}
	ok(expired <= 2, "slow requests cost no spins (%d)", expired);

	spin_init(&s, 50 * US);
	expired = 0;
	for (int i = 0; i < 1000; i++) { /* close, but never within a spin */
		if (spin_wanted(&s) != SPIN_BLOCK) {
			spin_expired(&s);
			expired++;
		}
		now += 300 * US;
		spin_arrived(&s, now, false);
	}
	ok(expired < 60, "fruitless spins get rare (%d)", expired);
}

static void test_fixed(void)
{
	struct spin s;
	uint64_t now = 1;
	int met[SPIN_WAYS];

	spin_init(&s, 0);
	spin_allow_beside(&s);
	stream(&s, &now, CLIENT(120, 20, 8), 5000, met);
	eq_int(met[SPIN_BLOCK], 5000, "never, when told so");
	spin_init(&s, 50 * US);
	spin_always(&s, SPIN_READ);
	stream(&s, &now, CLIENT(20, 40, 8), 5000, met);
	ok(met[SPIN_READ] > 4990, "always, when told so");
}

int main(void)
{
	test_choice();
	test_beside();
	test_hopeless();
	test_change();
	test_quiet();
	test_fixed();
	return tap_done();
}
