/* The plan decoder: what is valid comes out as it was put in, and nothing else comes out at all. */
#include "stage3/plan.h"

#include <errno.h>
#include <stdint.h>

#include "tests/lib/tap.h"

#define MAX 65536

/* A plan built by hand, in the order of stage3_abi.h. */
struct made {
	_Alignas(8) uint8_t p[MAX];
	size_t n;
};

static void put(struct made *m, const void *p, size_t n)
{
	memcpy(m->p + m->n, p, n);
	m->n += n;
}

static void put_text(struct made *m, const char *s)
{
	put(m, s, strlen(s) + 1);
}

static void make(struct made *m)
{
	struct stage3_plan_header h = {.magic = STAGE3_MAGIC,
				       .version = STAGE3_VERSION,
				       .handled = STAGE3_RIGHTS_ALL,
				       .required = STAGE3_EXECUTE,
				       .argc = 2,
				       .envc = 1,
				       .nrules = 1,
				       .nlimits = 1,
				       .nfilters = 2,
				       .filter_len = {2, 1},
				       .oom_score_adj = 500};
	const struct stage3_limit l = {.resource = 4, .value = 7};
	const struct stage3_rule rule = {.rights = STAGE3_READ_FILE, .flags = STAGE3_RULE_HOLE};
	size_t at;

	m->n = 0;
	put(m, &h, sizeof(h));
	put(m, &l, sizeof(l));
	put(m, &rule, sizeof(rule));
	put(m, "aaaaaaaabbbbbbbbcccccccc", 24);
	at = m->n;
	put_text(m, "/tmp");
	put_text(m, "echo");
	put_text(m, "");
	put_text(m, "A=b");
	put_text(m, "/work");
	h.strings_len = (uint32_t)(m->n - at);
	h.size = (uint32_t)m->n;
	memcpy(m->p, &h, sizeof(h));
}

static int decode(struct made *m, struct plan *ret)
{
	static char *room[256];

	return plan_decode(m->p, m->n, room, 256, ret);
}

static struct stage3_plan_header *header(struct made *m)
{
	return (struct stage3_plan_header *)(void *)m->p;
}

static void test_plan_decode__valid(void)
{
	struct made m;
	struct plan p;
	size_t need = 0;

	make(&m);
	eq_int(plan_pointers(m.p, m.n, &need), 0, "pointers of a valid plan");
	eq_int(need, 2 + 1 + 1 + 1 + 1, "number of pointers");
	eq_int(decode(&m, &p), 0, "a valid plan decodes");
	eq_str(p.cwd, "/tmp", "cwd");
	eq_str(p.argv[0], "echo", "argv[0]");
	eq_str(p.argv[1], "", "an empty argument");
	ok(!p.argv[2], "argv ends");
	eq_str(p.envp[0], "A=b", "env");
	ok(!p.envp[1], "env ends");
	eq_str(p.rule_paths[0], "/work", "rule path");
	eq_int(p.rules[0].flags, STAGE3_RULE_HOLE, "rule flags");
	eq_int(p.limits[0].value, 7, "limit");
	eq_int(p.filter_len[0], 2, "first filter");
	ok(!memcmp(p.filter[1], "cccccccc", 8), "second filter's instructions");
}

static void test_plan_decode__every_length(void)
{
	struct made m;
	struct plan p;
	size_t full, n;
	int bad = 0;

	make(&m);
	full = m.n;
	for (n = 0; n < full; n++) {
		m.n = n;
		bad += decode(&m, &p) != -EBADMSG;
	}
	eq_int(bad, 0, "no shorter plan decodes");
	make(&m);
	m.n++;
	eq_int(decode(&m, &p), -EBADMSG, "nor one with a byte behind it");
	make(&m);
	m.p[m.n++] = 0;
	header(&m)->size++;
	header(&m)->strings_len++;
	eq_int(decode(&m, &p), -EBADMSG, "nor one with a string too many");
}

/* Each row breaks one field. */
static void test_plan_decode__rejects(void)
{
	static const struct {
		const char *what;
		size_t off;
		uint32_t value;
	} rows[] = {
#define FIELD(f) offsetof(struct stage3_plan_header, f)
		{"magic", FIELD(magic), 1},
		{"version", FIELD(version), STAGE3_VERSION + 1},
		{"unknown flag", FIELD(flags), STAGE3_PLAN_ALL + 1},
		{"shell text with arguments", FIELD(flags), STAGE3_PLAN_SHELL},
		{"the background of no terminal", FIELD(flags), STAGE3_PLAN_TTY_BACK},
		{"a note of no shell", FIELD(flags), STAGE3_PLAN_NOTE},
		{"no argument", FIELD(argc), 0},
		{"too many arguments", FIELD(argc), UINT32_MAX},
		{"one argument more than there is", FIELD(argc), 3},
		{"too much environment", FIELD(envc), UINT32_MAX},
		{"too many rules", FIELD(nrules), STAGE3_MAX_RULES + 1},
		{"huge rules", FIELD(nrules), UINT32_MAX},
		{"too many limits", FIELD(nlimits), STAGE3_MAX_LIMITS + 1},
		{"too many filters", FIELD(nfilters), 3},
		{"empty filter", FIELD(filter_len), 0},
		{"huge filter", FIELD(filter_len), 0x20000001},
		{"filter that is not counted", FIELD(nfilters), 1},
		{"huge strings", FIELD(strings_len), UINT32_MAX},
		{"oom score", FIELD(oom_score_adj), 1001},
		{"negative oom score", FIELD(oom_score_adj), (uint32_t)-1},
		{"a right that there is not", FIELD(handled), STAGE3_RIGHTS_ALL + 1},
		{"a right that is required and not handled", FIELD(handled),
		 STAGE3_RIGHTS_ALL & ~STAGE3_EXECUTE},
		{"limit's resource", 64, 32},
		{"limit's reserved", 68, 1},
		{"rule's rights", 80, STAGE3_RIGHTS_FS + 1},
		{"rule's flags", 84, STAGE3_RULE_ALL + 1},
	};
	struct made m;
	struct plan p;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		make(&m);
		memcpy(m.p + rows[i].off, &rows[i].value, 4);
		eq_int(decode(&m, &p), -EBADMSG, "refused: %s", rows[i].what);
	}
	make(&m);
	memcpy(m.p + m.n - 6, "x", 1);
	eq_int(decode(&m, &p), -EBADMSG, "refused: a rule's path that is not absolute");
	make(&m);
	*(char *)memchr(m.p + 112, '/', m.n - 112) = 'x';
	eq_int(decode(&m, &p), -EBADMSG, "refused: a working directory that is not absolute");
	make(&m);
	*(char *)memchr(m.p + 112, '=', m.n - 112) = 'x';
	eq_int(decode(&m, &p), -EBADMSG, "refused: a variable without =");
}

/* Bytes turned at random: the sanitizers watch that nothing outside of the plan is touched. */
static void test_plan_decode__mutated(void)
{
	uint64_t seed = 0x9e3779b97f4a7c15ull;
	int round, k, decoded = 0;
	struct plan p;
	size_t i;

	for (round = 0; round < 200000; round++) {
		struct made m;
		uint8_t *exact;
		char *room[256];

		make(&m);
		for (k = 0; k < 1 + round % 4; k++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			m.p[(seed >> 33) % m.n] = (uint8_t)(seed >> 25);
		}
		exact = malloc(m.n);
		if (!exact)
			tap_fatal("memory");
		memcpy(exact, m.p, m.n);
		if (plan_decode(exact, m.n, room, 256, &p) == 0) {
			decoded++;
			for (i = 0; i < p.argc; i++)
				if (strlen(p.argv[i]) > m.n)
					tap_fatal("argument outside of the plan");
		}
		free(exact);
	}
	ok(decoded > 1000 && decoded < 200000, "200000 mutated plans (%d still valid)", decoded);
}

int main(void)
{
	test_plan_decode__valid();
	test_plan_decode__every_length();
	test_plan_decode__rejects();
	test_plan_decode__mutated();
	return tap_done();
}
