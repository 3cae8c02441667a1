/* The table of mounts, as text and as the kernel has it. */
#include "base/mounts.h"

#include "tests/lib/tap.h"

static const char table[] =
	"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
	"40 22 0:31 / /home/a\\040b\\134c rw,nosuid - fuse rattan:default rw,user_id=0\n"
	"41 22 0:32 / /m rw shared:2 master:1 - fuse.rattan rattan rw\n"
	/* three on top of each other, the uppermost in the middle of the table */
	"50 22 0:40 / /s rw - fuse rattan rw\n"
	"52 51 0:42 / /s rw - fuse rattan rw\n"
	"51 50 0:41 / /s rw - tmpfs rattan rw\n"
	"61 60 0:51 / /c rw - tmpfs none rw\n"
	"60 22 0:50 / /c rw - fuse rattan rw\n"
	"70 22 0:60 / /t rw - tmpfs rattan rw\n"
	"71 22 0:61 / /o rw - fuse.sshfs rattan-not:/x rw\n"
	"72 22 0:62 / /p rw - fuseblk rattan rw\n"
	"not a line\n"
	"80 22 0:70 / /last rw - fuse rattan:x rw";

static void at(const char *path, bool want)
{
	bool got = !want;

	eq_int(mounts_at_in(table, path, &got), 0, "the table is read");
	ok(got == want, "%s is %sours", path, want ? "" : "not ");
}

static void has(unsigned major, unsigned minor, bool want)
{
	bool got = !want;

	eq_int(mounts_has_in(table, major, minor, &got), 0, "the table is read");
	ok(got == want, "%u:%u is %sthere", major, minor, want ? "" : "not ");
}

int main(void)
{
	bool got = true;

	at("/", false);
	at("/home/a b\\c", true);
	at("/home/a\\040b\\134c", false);
	at("/home", false);
	at("/m", true);
	at("/m/", false);
	at("/s", true);
	at("/c", false);
	at("/t", false);
	at("/o", false);
	at("/p", false);
	at("/last", true);
	at("/nowhere", false);
	has(0, 42, true);
	has(0, 40, true);
	has(0, 41, false);
	has(8, 1, false);
	has(0, 50, true);
	has(0, 99, false);
	has(1, 42, false);
	/* The root may be one of ours, in a sandbox. */
	eq_int(mounts_at("/proc", &got), 0, "the kernel's table");
	ok(!got, "/proc is none of ours");
	return tap_done();
}
