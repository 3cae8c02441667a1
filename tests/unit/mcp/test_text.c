#include "mcp/shelltext.h"
#include "tests/lib/tap.h"

static void clean_is(const char *in, size_t n, const char *want, const char *what)
{
	struct buf b = {0};
	uint8_t *exact = malloc(n + !n);

	if (!exact)
		tap_fatal("memory");
	memcpy(exact, in, n);
	if (sh_clean(&b, exact, n))
		tap_fatal("sh_clean");
	eq_str(b.data ? (const char *)b.data : "", want, "%s", what);
	free(exact);
	buf_release(&b);
}
#define CLEAN(in, want, what) clean_is(in, sizeof(in) - 1, want, what)

static void test_clean(void)
{
	CLEAN("plain\ttext\n", "plain\ttext\n", "plain text stays");
	CLEAN("", "", "nothing");
	CLEAN("\033[1;31mred\033[0m", "red", "colours");
	CLEAN("\033]0;title\007x\033]8;;u\033\\y", "xy", "titles and links");
	CLEAN("\033(Bx\033=y\033", "xy", "short sequences, and one cut off");
	CLEAN("\033[12", "", "a cut off colour");
	CLEAN("\xc2\x9b"
	      "31mred\xc2\x9d"
	      "0;title\xc2\x85\xc3\xa9",
	      "31mred0;title\xc3\xa9", "control characters of eight bits");
	CLEAN("10%\r20%\r30%\ndone\n", "30%\ndone\n", "a progress bar");
	CLEAN("a\r\nb\r\n", "a\nb\n", "CRLF");
	CLEAN("first\nab\rc", "first\nc", "only the line is overwritten");
	CLEAN("ab\bc\b\b\b\bd", "d", "backspace stops at the line's start");
	CLEAN("x\n\by", "x\ny", "and does not join lines");
	CLEAN("\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82", "bytes that are not UTF-8");
	CLEAN("\xc3\xa9\0\x01z", "\xc3\xa9z", "NUL and control characters are dropped");
}

static void test_size(void)
{
	struct buf b = {0};

	if (sh_size(&b, 0) || buf_puts(&b, " ") || sh_size(&b, 1023) || buf_puts(&b, " ") ||
	    sh_size(&b, 1536) || buf_puts(&b, " ") || sh_size(&b, 5ull << 30))
		tap_fatal("memory");
	eq_str((const char *)b.data, "0 B 1023 B 1.5 KiB 5.0 GiB", "sizes");
	buf_release(&b);
}

static void status_is(struct job_info *in, const struct changes *ch, uint64_t lines,
		      const char *want)
{
	struct buf b = {0};

	if (sh_status(&b, in, ch, lines))
		tap_fatal("memory");
	eq_str((const char *)b.data, want, "%s", want);
	buf_release(&b);
}

/* The grammar that docs/mcp.md promises. */
static void test_status(void)
{
	struct job_info in = {.id = "j1-ab", .ended = true, .result = {.wall_s = 1.5}};
	struct changes ch = {.known = true, .total = 1};

	in.result.state = RUN_EXITED;
	status_is(&in, NULL, 0, "exit 0 in 1.50s");
	in.size[0] = 10;
	status_is(&in, &ch, 1, "exit 0 in 1.50s  out 1 line 10 B  changed 1 file");
	ch.total = 3;
	in.separate = true;
	in.size[1] = 5;
	in.result.code = 2;
	status_is(&in, &ch, 2, "exit 2 in 1.50s  out 2 lines 10 B  err 5 B  changed 3 files");
	in = (struct job_info){.ended = true,
			       .result = {.state = RUN_SIGNALED, .signal = 11, .code = 139}};
	status_is(&in, NULL, 0, "signal SIGSEGV (exit 139) in 0.00s");
	in.result.timed_out = true;
	in.result.wall_s = 300;
	status_is(&in, NULL, 0, "timed out after 300.00s, killed");
	in = (struct job_info){.ended = true, .cancelled = true, .result = {.state = RUN_SIGNALED}};
	status_is(&in, NULL, 0, "killed after 0.00s");
	in = (struct job_info){
		.ended = true,
		.result = {.state = RUN_NOT_STARTED, .step = "chdir", .error = "no"}};
	status_is(&in, NULL, 0, "not started: chdir: no");
	in = (struct job_info){.id = "j1-ab", .age_s = 45};
	status_is(&in, NULL, 0, "running as job j1-ab after 45.0s");
}

static void test_changes(void)
{
	struct changes ch = {0};

	if (changes_add(&ch, "/workspace/a", 'c') || changes_add(&ch, "/workspace/b", 'd') ||
	    changes_add(&ch, "/tmp/cc1.o", 'd') || changes_add(&ch, "/tmp/kept", 'c'))
		tap_fatal("memory");
	ok(ch.paths.len == 37 &&
		   !memcmp(ch.paths.data, "/workspace/a\0-/workspace/b\0/tmp/kept", 37),
	   "changes; scratch files that are gone do not count");
	eq_int(ch.total, 3, "three of them");
	for (int i = 0; i < 1000; i++)
		if (changes_add(&ch, "/workspace/x", 'c'))
			tap_fatal("memory");
	ok(ch.total == 1003 && ch.kept == CHANGES_KEPT, "all are counted, some are kept");
	buf_release(&ch.paths);
}

int main(void)
{
	test_clean();
	test_size();
	test_status();
	test_changes();
	return tap_done();
}
