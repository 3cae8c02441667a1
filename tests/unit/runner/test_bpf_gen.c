/* The filter compiler: what was embedded at build time is what it makes now, and names are exact. */
#include "runner/bpf_gen.h"

#include "runner/bpf_default.h"
#include "runner/promises.h"
#include "tests/lib/tap.h"

static void test_promises_parse(void)
{
	static const struct {
		const char *text;
		int r;
		uint32_t mask;
	} rows[] = {
		{NULL, 0, PROMISES_DEFAULT},
		{"", 0, PROMISE_STDIO},
		{"stdio", 0, PROMISE_STDIO},
		{"  rpath   tty ", 0, PROMISE_STDIO | PROMISE_RPATH | PROMISE_TTY},
		{"rpat", -EINVAL, 0},
		{"rpathx", -EINVAL, 0},
		{"proc,exec", -EINVAL, 0},
		{"STDIO", -EINVAL, 0},
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct diag d = {{0}};
		uint32_t mask = 0;

		eq_int(promises_parse(rows[i].text, &d, &mask), rows[i].r, "\"%s\"",
		       rows[i].text ? rows[i].text : "(default)");
		eq_int(mask, rows[i].mask, "its set");
		eq_int(d.text[0] != 0, rows[i].r < 0, "a sentence when it is refused");
	}
	ok(!(PROMISES_DEFAULT & (PROMISE_PTRACE | PROMISE_SETTIME)), "the default has no ptrace");
}

static void test_bpf_gen(void)
{
	struct bpf_filters f = {0};
	uint32_t bit;

	eq_int(bpf_gen(PROMISES_DEFAULT, &f), 0, "the default compiles");
	ok(f.arguments.len == bpf_default_arguments_count * 8 &&
		   !memcmp(f.arguments.data, bpf_default_arguments, f.arguments.len),
	   "to the filter of the build (arguments)");
	ok(f.calls.len == bpf_default_calls_count * 8 &&
		   !memcmp(f.calls.data, bpf_default_calls, f.calls.len),
	   "to the filter of the build (calls)");
	bpf_filters_release(&f);
	for (bit = 1; bit <= PROMISE_SETTIME; bit <<= 1) {
		f = (struct bpf_filters){0};
		ok(bpf_gen(PROMISE_STDIO | bit, &f) == 0 && f.calls.len > 0 && f.arguments.len > 0,
		   "promise %#x compiles", bit);
		bpf_filters_release(&f);
	}
}

static void test_tables(void)
{
	size_t i, j;
	int bad = 0;

	for (i = 0; i < promise_calls_count; i++) {
		for (j = 0; j < i; j++) {
			if (!strcmp(promise_calls[i].name, promise_calls[j].name)) {
				printf("# twice: %s\n", promise_calls[i].name);
				bad++;
			}
		}
		bad += promise_calls[i].promises == 0;
	}
	eq_int(bad, 0, "every call has one row, and a promise");
	for (i = 0; i < promise_refused_count; i++) {
		for (j = 0; j < promise_calls_count; j++) {
			if (!strcmp(promise_refused[i], promise_calls[j].name) &&
			    promise_calls[j].promises & PROMISES_DEFAULT) {
				printf("# refused and allowed: %s\n", promise_refused[i]);
				bad++;
			}
		}
	}
	eq_int(bad, 0, "nothing that is refused is in the default set");
}

int main(void)
{
	test_promises_parse();
	test_bpf_gen();
	test_tables();
	return tap_done();
}
