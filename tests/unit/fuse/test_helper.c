/* Mounting through fusermount3: the same session, visible outside of any namespace. */
#include <poll.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fs/fuse/mount.h"
#include "tests/lib/tap.h"
#include "tests/unit/fuse/fake_ovl.h"
#include "tests/unit/fuse/rig.h"

static int c_stat(int arg)
{
	struct stat st;

	(void)arg;
	return stat("b", &st) < 0 ? -errno : (int)st.st_size;
}

/* The line of this mount in mountinfo has each of what is asked for. */
static int c_mount_flags(int arg)
{
	static const char *const want[] = {",nosuid,nodev", " - fuse rattan:te,st "};
	char line[4096];
	int found = -ENOENT;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	(void)arg;
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, "rattan:te"))
			continue;
		found = 0;
		for (int i = 0; i < 2; i++)
			found += strstr(line, want[i]) != NULL;
	}
	(void)fclose(f);
	return found;
}

int main(void)
{
	static struct ovl o;
	struct session_opts opts = {.ovl = &o, .ids = {.squash = true}, .spin_us = 0};
	struct mount_opts mo = {.name = "x", .helper = true, .dir = "/"};
	struct diag diag = {0};
	struct session *se;
	struct pollfd p;
	struct rig r;
	int fd;

	opts.ids.show_uid = geteuid();
	opts.ids.show_gid = getegid();
	rig_open(&r, true);
	opts.fuse_fd = r.fuse_fd;
	if (session_new(&se) < 0 || session_start(se, &opts) < 0)
		tap_fatal("cannot start a session");
	eq_int(rig_do(&r, c_stat, 0), FAKE_SIZE, "served");
	eq_int(rig_do(&r, c_mount_flags, 0), 2, "type and flags of the mount");
	mo.dir = "/proc/self";
	ok(mount_fuse(&mo, &diag, &fd) < 0 && diag.text[0], "refused: %s", diag.text);
	eq_int(mount_detach(r.mnt, true), 0, "unmount");
	p = (struct pollfd){.fd = session_ended_fd(se), .events = POLLIN};
	eq_int(poll(&p, 1, 2000), 1, "ends the session");
	ok(mount_detach(r.mnt, true) < 0, "not mounted twice");
	session_stop(se);
	rig_close(&r);

	/* Without the helper a sentence says what to install. */
	if (setenv("PATH", "/nonexistent", 1) == 0) {
		char dir[] = "/tmp/rattan-test-XXXXXX";

		mo.dir = mkdtemp(dir);
		diag = (struct diag){0};
		eq_int(mount_fuse(&mo, &diag, &fd), -ENOENT, "no helper");
		ok(strstr(diag.text, "fuse3"), "%s", diag.text);
		(void)rmdir(dir);
	}
	return tap_done();
}
