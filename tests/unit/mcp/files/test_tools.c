/* The file tools as a client sees them, over a real directory. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <sys/xattr.h>

#include "tests/unit/mcp/files/env.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/walk.h"

static struct client c;
static char content[1 << 16];

static const char *file(const char *path)
{
	(void)get_file(&c, path, content, sizeof(content));
	return content;
}

static struct answer *read_file(const char *json)
{
	return call_tool(&c, &tool_read_file, json);
}

static void reading(void)
{
	struct answer *a;

	put_text(&c, "workspace/a.txt", "one\ntwo\nthree");
	a = read_file("{'path':'a.txt'}");
	ok(!a->error && has(a, "a.txt  lines 1-3 of 3  utf-8 LF 13 B  v:"), "header");
	ok(has(a, "\n1→one\n2→two\n3→three\n[no newline at end of file]\n"), "numbered lines");
	ok(cJSON_GetObjectItem(a->meta, "total_lines")->valueint == 3, "meta says the same");
	a = read_file("{'file_path':'/workspace/a.txt','offset':'2','limit':1}");
	ok(has(a, "lines 2-2 of 3") && has(a, "2→two\n[more lines follow; next: offset=3]"),
	   "a window");
	a = read_file("{'path':'a.txt','offset':-1,'line_numbers':false}");
	ok(has(a, "lines 3-3 of 3") && has(a, "\nthree\n") && !strstr(a->text, "→"),
	   "from the end, raw");
	a = read_file("{'path':'a.txt','offset':9}");
	ok(a->error && has(a, "error: offset 9 is past the end: the file has 3 lines"),
	   "past the end");
	put_text(&c, "workspace/empty", "");
	ok(has(read_file("{'path':'empty'}"), "(empty file)"), "empty");
	a = read_file("{'path':'a.tx'}");
	ok(a->error && has(a, "similar names there: a.txt"), "missing: similar names");
	a = read_file("{'path':'no/such/dir/f'}");
	ok(a->error && has(a, "the nearest directory that exists is ."),
	   "missing: nearest directory");
	a = read_file("{'path':'.'}");
	ok(!a->error && has(a, "is a directory; its entries:") && has(a, "a.txt  13 B"),
	   "a directory");
	a = read_file("{}");
	ok(a->error && has(a, "path is missing"), "no path");
	put_text(&c, "workspace/crlf", "x\r\ny\r\n");
	ok(has(read_file("{'path':'crlf'}"), "utf-8 CRLF 6 B") &&
		   has(read_file("{'path':'crlf'}"), "1→x\n2→y\n"),
	   "CRLF belongs to the ending");
	put_text(&c, "workspace/latin", "caf\xe9\n");
	a = read_file("{'path':'latin'}");
	ok(has(a, "[1 bytes are not UTF-8 and are shown as \\xNN]") && has(a, "1→caf\\xe9\n"),
	   "latin-1");
	put_file(&c, "workspace/u16", "\xff\xfeh\0i\0\n\0", 8);
	ok(has(read_file("{'path':'u16'}"), "utf-16le LF 8 B") &&
		   has(read_file("{'path':'u16'}"), "1→hi\n"),
	   "UTF-16 is shown as text");
	put_text(&c, "workspace/bom", "\xef\xbb\xbfx\n");
	ok(has(read_file("{'path':'bom'}"), "utf-8-bom") &&
		   has(read_file("{'path':'bom'}"), "\n1→x\n"),
	   "BOM");
}

static void bytes(void)
{
	struct answer *a;

	put_file(&c, "workspace/bin",
		 "\x7f"
		 "ELF\2\1\1\0hello world plus",
		 24);
	a = read_file("{'path':'bin'}");
	ok(a->error && has(a, "bin: binary file, ELF 64-bit, 24 B; use as:\"hex\""),
	   "binary is refused");
	a = read_file("{'path':'bin','as':'hex'}");
	ok(has(a, "bytes 1-24 of 24  hex") &&
		   has(a,
		       "00000000  7f 45 4c 46 02 01 01 00  68 65 6c 6c 6f 20 77 6f  |.ELF....hello wo|\n"),
	   "hex");
	ok(has(read_file("{'path':'bin','as':'hex','offset':2}"), "00000010  72 6c 64 20"),
	   "hex by rows");
	ok(has(read_file("{'path':'bin','as':'base64'}"), "\nf0VMRgIBAQBoZWxsbyB3b3JsZCBwbHVz\n"),
	   "base64");
	a = read_file("{'path':'bin','as':'pdf'}");
	ok(a->error && has(a, "is not auto, text, hex or base64"), "unknown kind");
}

static void big_files(void)
{
	size_t n = 12u << 20;
	char *p = malloc(n + 1);
	struct answer *a;

	if (!p)
		tap_fatal("memory");
	for (size_t i = 0; i < n; i += 16)
		(void)snprintf(p + i, 17, "line %09zu\n", i / 16 + 1);
	for (size_t i = 0; i + 16 <= n; i += 16)
		p[i + 14] = '.', p[i + 15] = '\n';
	put_file(&c, "workspace/big", p, n);
	a = read_file("{'path':'big','offset':700000,'limit':2}");
	ok(!a->error && has(a, "lines 700000-700001 of 786432") &&
		   has(a, "\n700000→line 000700000."),
	   "a window deep in a big file");
	a = read_file("{'path':'big','offset':-1}");
	ok(has(a, "786432→line 000786432.\n"), "its last line");
	a = read_file("{'path':'big','max_bytes':256}");
	ok(has(a, "[cut at 256 bytes; next: offset="), "cut by bytes");
	free(p);
	unlinkat(c.root_fd, "workspace/big", 0);
}

/* A command makes a file of terabytes with one call. */
static void endless(void)
{
	struct answer *a;
	int fd = openat(c.root_fd, "workspace/hole", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	rlim_t most = (rlim_t)4 << 40;
	struct rlimit rl;

	if (getrlimit(RLIMIT_FSIZE, &rl) == 0 && rl.rlim_cur < most)
		most = rl.rlim_cur; /* in a sandbox of our own */
	if (fd < 0 || ftruncate(fd, (off_t)most) < 0)
		tap_fatal("a hole");
	(void)close(fd);
	a = read_file("{'path':'hole','as':'text','offset':-3}");
	ok(a->error && has(a, "too far into the file"), "lines are not looked for without end");
	a = read_file("{'path':'hole','as':'text','offset':2000000}");
	ok(a->error && has(a, "too far into the file"), "from either side");
	(void)unlinkat(c.root_fd, "workspace/hole", 0);
}

static void refusals(void)
{
	struct answer *a;

	ok(has(read_file("{'path':'C:\\\\x\\\\y'}"), "Windows host"), "Windows");
	ok(has(read_file("{'path':'/Users/me/x'}"), "host, which is not visible"), "/Users");
	ok(has(read_file("{'path':'~/x/y'}"), "/home/user/x/y"), "~");
	ok(has(read_file("{'path':'~other/x'}"), "homes of other users"), "~other");
	ok(has(read_file("{'path':'file:///etc/passwd'}"), "is a URL"), "URL");
	ok(has(read_file("{'path':'/proc/self/environ'}"), "belongs to the kernel"), "/proc");
	ok(has(read_file("{'path':'//proc/./self/environ'}"), "belongs to the kernel"),
	   "/proc, spelled");
	ok(read_file("{'path':''}")->error, "empty path");
	if (mkfifoat(c.root_fd, "workspace/fifo", 0644) < 0)
		tap_fatal("mkfifo");
	a = read_file("{'path':'fifo'}");
	ok(a->error && has(a, "is a FIFO, socket or device"), "a FIFO does not block");
	a = call_tool(&c, &tool_write_file, "{'path':'fifo','content':'x','mode':'overwrite'}");
	ok(a->error && has(a, "is a FIFO, socket or device"), "nor is it written");
}

/* Everything resolves inside the tree (F1). */
static void links(void)
{
	struct answer *a;

	ok(!symlinkat("/etc/passwd", c.root_fd, "workspace/abs") &&
		   !symlinkat("../../../../../../etc/passwd", c.root_fd, "workspace/up") &&
		   !symlinkat("/workspace/real", c.root_fd, "workspace/ln") &&
		   !symlinkat("loop", c.root_fd, "workspace/loop") &&
		   !symlinkat("sub/deep/new.txt", c.root_fd, "workspace/dangling"),
	   "symlinks");
	a = read_file("{'path':'abs'}");
	ok(a->error && has(a, "no such file"), "an absolute link stays in the tree");
	ok(read_file("{'path':'up'}")->error, "so does a climbing one");
	ok(read_file("{'path':'../../../../../etc/passwd'}")->error, "and a climbing path");
	a = call_tool(&c, &tool_write_file, "{'path':'abs','content':'inside\\n'}");
	ok(!a->error && !strcmp(file("etc/passwd"), "inside\n"),
	   "a write through it makes the tree's file");
	ok(has(read_file("{'path':'/etc/passwd'}"), "1→inside"), "which a read then sees");
	put_text(&c, "workspace/real", "r\n");
	a = call_tool(&c, &tool_edit, "{'path':'ln','old_string':'r','new_string':'s'}");
	ok(!a->error && has(a, "its target was written") && !strcmp(file("workspace/real"), "s\n"),
	   "an edit follows a link");
	struct stat st;

	ok(!fstatat(c.root_fd, "workspace/ln", &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode),
	   "and leaves it a link");
	a = call_tool(&c, &tool_write_file, "{'path':'dangling','content':'d'}");
	ok(!a->error && !strcmp(file("workspace/sub/deep/new.txt"), "d"),
	   "a dangling link's target is made");
	a = read_file("{'path':'loop'}");
	ok(a->error && has(a, "too many symbolic links"), "a loop");
	a = call_tool(&c, &tool_write_file, "{'path':'loop','content':'d'}");
	ok(a->error && has(a, "too many symbolic links"), "a loop, written");
}

static struct answer *write_file(const char *json)
{
	return call_tool(&c, &tool_write_file, json);
}

static void writing(void)
{
	struct answer *a = write_file("{'path':'n/e/w.txt','content':'a\\nb\\n'}");
	struct stat st;
	char was[32];

	ok(!a->error && has(a, "created n/e/w.txt  2 lines  4 B  v:"), "create, parents made");
	eq_str(file("workspace/n/e/w.txt"), "a\nb\n", "bytes as given");
	ok(!fstatat(c.root_fd, "workspace/n/e/w.txt", &st, 0) && (st.st_mode & 07777) == 0644,
	   "mode 644");
	a = write_file("{'path':'n/e/w.txt','content':'a\\nb\\n'}");
	ok(!a->error && has(a, "unchanged n/e/w.txt"), "sent again: no harm");
	a = write_file("{'path':'n/e/w.txt','content':'c\\n'}");
	ok(a->error && has(a, "n/e/w.txt exists, 4 B, v:") && has(a, "mode:\"overwrite\""),
	   "no blind overwrite");
	a = write_file(
		"{'path':'n/e/w.txt','content':'a\\nc\\nd','mode':'overwrite','file_mode':'755'}");
	ok(!a->error && has(a, "overwrote n/e/w.txt  +2 −1 lines  5 B  v:") && has(a, "(was v:") &&
		   has(a, "note: no newline at end of file"),
	   "overwrite");
	ok(!fstatat(c.root_fd, "workspace/n/e/w.txt", &st, 0) && (st.st_mode & 07777) == 0755,
	   "mode set");
	a = write_file("{'path':'n/e/w.txt','content':'!','mode':'append'}");
	ok(!a->error && has(a, "appended to n/e/w.txt"), "append");
	eq_str(file("workspace/n/e/w.txt"), "a\nc\nd!", "appended");
	a = read_file("{'path':'n/e/w.txt'}");
	(void)snprintf(was, sizeof(was), "%s",
		       cJSON_GetObjectItem(a->meta, "version")->valuestring);
	a = write_file(
		"{'path':'n/e/w.txt','content':'x','mode':'overwrite','expect_version':'v:00000000'}");
	ok(a->error && has(a, "changed: it is ") && has(a, was), "another version than expected");
	char json[200];

	(void)snprintf(json, sizeof(json),
		       "{'path':'n/e/w.txt','content':'x','mode':'overwrite',"
		       "'expect_version':'%s'}",
		       was);
	ok(!write_file(json)->error, "the version that was read");
	a = write_file("{'path':'b','content_base64':'AAH/'}");
	ok(!a->error && get_file(&c, "workspace/b", content, 10) == 3 &&
		   !memcmp(content, "\0\1\xff", 3),
	   "bytes");
	ok(write_file("{'path':'b2','content_base64':'A!'}")->error, "bad base64");
	ok(write_file("{'path':'b3'}")->error, "no content");
	ok(has(write_file("{'path':'s','content':'#!/bin/sh\\n'}"), "not executable"),
	   "script without mode");
	ok(write_file("{'path':'q/r','content':'x','create_dirs':false}")->error,
	   "no parents wanted");
	ok(has(write_file("{'path':'n/e','content':'x'}"), "is a directory"), "a directory");
	ok(has(write_file("{'path':'b/x','content':'x'}"), "not a directory"), "below a file");
}

/* No temporary file is left, whatever happened above. */
static void no_leftovers(void)
{
	struct answer *a =
		call_tool(&c, &tool_glob, "{'pattern':'.*rattan-*','use_default_ignore':false}");

	ok(!a->error && has(a, "0 matches"), "no temporary files");
}

static void keeping(void)
{
	struct stat st, st2;
	char v[8] = "";
	bool xattrs;

	put_text(&c, "workspace/k", "old\n");
	ok(!fchmodat(c.root_fd, "workspace/k", 04751, 0), "chmod");
	int fd = openat(c.root_fd, "workspace/k", O_RDONLY | O_CLOEXEC);

	xattrs = !fsetxattr(fd, "user.note", "hi", 2, 0);
	(void)close(fd);
	ok(!call_tool(&c, &tool_edit, "{'path':'k','old_string':'old','new_string':'new'}")->error,
	   "edit");
	ok(!fstatat(c.root_fd, "workspace/k", &st, 0) && (st.st_mode & 07777) == 04751,
	   "mode is kept");
	fd = openat(c.root_fd, "workspace/k", O_RDONLY | O_CLOEXEC);
	ok(!xattrs || (fgetxattr(fd, "user.note", v, sizeof(v)) == 2 && !memcmp(v, "hi", 2)),
	   "xattrs are kept");
	(void)close(fd);
	ok(!linkat(c.root_fd, "workspace/k", c.root_fd, "workspace/k2", 0), "link");
	struct answer *a =
		call_tool(&c, &tool_edit, "{'path':'k','old_string':'new','new_string':'n'}");

	ok(!a->error && has(a, "written in place (hard link)"), "a hard link is written in place");
	eq_str(file("workspace/k2"), "n\n", "so both names see it");
	ok(!fstatat(c.root_fd, "workspace/k", &st, 0) &&
		   !fstatat(c.root_fd, "workspace/k2", &st2, 0) && st.st_ino == st2.st_ino,
	   "and stay one file");
	put_text(&c, "workspace/ro", "x\n");
	ok(!fchmodat(c.root_fd, "workspace/ro", 0444, 0), "read-only file");
	if (geteuid()) {
		a = call_tool(&c, &tool_edit, "{'path':'ro','old_string':'x','new_string':'y'}");
		ok(a->error && has(a, "permission denied"), "is not written around");
		c.rule = "deny /workspace/ro";
		a = call_tool(&c, &tool_edit, "{'path':'ro','old_string':'x','new_string':'y'}");
		ok(a->error && has(a, "the sandbox's policy forbids it: deny /workspace/ro"),
		   "a rule that was in the way is named");
		c.rule = NULL;
		ok(!mkdirat(c.root_fd, "usr", 0755), "usr");
		put_text(&c, "usr/f", "x\n");
		ok(!fchmodat(c.root_fd, "usr/f", 0444, 0) && !fchmodat(c.root_fd, "usr", 0555, 0),
		   "closed");
		a = write_file("{'path':'/usr/new','content':'x'}");
		ok(a->error &&
			   has(a,
			       "read-only in this sandbox; writable places are /workspace, /tmp"),
		   "the policy is explained");
		ok(!fchmodat(c.root_fd, "usr", 0755, 0), "opened again");
	}
}

static struct answer *edit(const char *json)
{
	return call_tool(&c, &tool_edit, json);
}

static void editing(void)
{
	struct answer *a;

	put_text(&c, "workspace/e.c", "int a;\nint b;\nint c;\nint a2;\n");
	a = edit("{'path':'e.c','old_string':'int b;','new_string':'long b;'}");
	ok(!a->error && has(a, "edited e.c  1 replacement at line 2  +1 −1") && has(a, "(was v:"),
	   "edit");
	ok(has(a, "@@ -1,4 +1,4 @@\n int a;\n-int b;\n+long b;\n int c;\n"), "answers with a diff");
	a = edit("{'path':'e.c','old_string':'int b;','new_string':'long b;'}");
	ok(a->error && has(a, "already applied?"), "a second time");
	a = edit("{'file_path':'e.c','old_str':'int','new_str':'x'}");
	ok(a->error && has(a, "occurs 3 times") && has(a, "\n1: int a;\n3: int c;\n4: int a2;"),
	   "several");
	a = edit("{'path':'e.c','edits':[{'old_string':'int c','new_string':'int d'},"
		 "{'old_string':'nope','new_string':'x'}]}");
	ok(a->error && has(a, "edits[1]") && has(a, "nothing was changed") &&
		   strstr(file("workspace/e.c"), "int c;"),
	   "all or none");
	a = edit("{'path':'e.c','edits':[{'old_string':'int c','new_string':'int d'},"
		 "{'old_string':'int d','new_string':'int e'}],'dry_run':true}");
	ok(!a->error && has(a, "would edit e.c  2 replacements") &&
		   strstr(file("workspace/e.c"), "int c;"),
	   "dry run");
	a = edit(
		"{'path':'e.c','old_string':'int','new_string':'char','replace_all':true,'diff':false}");
	ok(!a->error && has(a, "3 replacements from line 1") && !strstr(a->text, "@@"),
	   "all, without diff");
	eq_str(file("workspace/e.c"), "char a;\nlong b;\nchar c;\nchar a2;\n", "all of them");
	ok(edit("{'path':'e.c','old_string':'','new_string':'x'}")->error, "empty old text");
	ok(edit("{'path':'e.c','old_string':'x','new_string':'x'}")->error, "nothing to change");
	ok(edit("{'path':'e.c','edits':[]}")->error, "an empty list");
	ok(edit("{'path':'missing.c','old_string':'x','new_string':'y'}")->error, "no file");
	put_file(&c, "workspace/l1", "caf\xe9 one\r\n", 10);
	a = edit("{'path':'l1','old_string':'one','new_string':'two'}");
	ok(!a->error && get_file(&c, "workspace/l1", content, 20) == 10 &&
		   !memcmp(content, "caf\xe9 two\r\n", 10),
	   "bytes of another charset and CRLF survive");
	ok(has(edit("{'path':'u16','old_string':'h','new_string':'j'}"), "iconv -f utf-16le"),
	   "UTF-16 is refused");
}

/* Parallel edits of one file all land. */
static void racing(void)
{
	char json[200];
	bool fine = true;
	pid_t pids[8];

	put_text(&c, "workspace/race", "p0\np1\np2\np3\np4\np5\np6\np7\n");
	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			(void)snprintf(json, sizeof(json),
				       "{'path':'race','old_string':'p%d\\n',"
				       "'new_string':'done%d\\n'}",
				       i, i);
			_exit(edit(json)->error);
		}
	}
	for (int i = 0; i < 8; i++) {
		int status = -1;

		fine &= waitpid(pids[i], &status, 0) == pids[i] && !status;
	}
	ok(fine, "eight edits at once succeed");
	eq_str(file("workspace/race"), "done0\ndone1\ndone2\ndone3\ndone4\ndone5\ndone6\ndone7\n",
	       "and all land");
}

static void tree(void)
{
	ok(!mkdirat(c.root_fd, "workspace/p", 0755) &&
		   !mkdirat(c.root_fd, "workspace/p/src", 0755) &&
		   !mkdirat(c.root_fd, "workspace/p/out", 0755) &&
		   !mkdirat(c.root_fd, "workspace/p/.git", 0755) &&
		   !mkdirat(c.root_fd, "workspace/p/node_modules", 0755),
	   "a project");
	put_text(&c, "workspace/p/.gitignore", "out/\n*.log\n");
	put_text(&c, "workspace/p/src/a.c",
		 "int foo;\n// nothing\nint foo2; Foo\n\n\n\nfoo again\n");
	put_text(&c, "workspace/p/src/b.h", "extern int foo;\n");
	put_text(&c, "workspace/p/src/.gitignore", "!keep.log\n");
	put_text(&c, "workspace/p/src/keep.log", "foo\n");
	put_text(&c, "workspace/p/src/drop.log", "foo\n");
	put_text(&c, "workspace/p/out/gen.c", "foo OnlyHere\n");
	put_text(&c, "workspace/p/.git/config", "foo\n");
	put_text(&c, "workspace/p/node_modules/m.js", "foo\n");
	put_text(&c, "workspace/p/.env.example", "FOO=foo\n");
	put_file(&c, "workspace/p/bin", "foo\0foo\n", 8);
	ok(!symlinkat(".", c.root_fd, "workspace/p/self"), "a link to itself");
}

/* What a walk tells before its turn: each name once, only such as it gives afterwards, and none that a rule ignores. */
static unsigned told[100], given;

static void on_ahead(void *arg, int dir_fd, const char *name, unsigned char type)
{
	(void)arg;
	(void)dir_fd;
	told[strtoul(name + 1, NULL, 10)] += type == DT_REG ? 1 : 100;
}

static int on_given(void *arg, const struct walk_entry *e)
{
	unsigned long n = strtoul(e->name + 1, NULL, 10);

	(void)arg;
	if (e->ignored)
		ok(told[n] == 0, "%s is ignored, and was not told before its turn", e->name);
	else
		given++;
	told[n] = e->ignored ? 0 : told[n] ? 2 : 0;
	return WALK_ON;
}

static void ahead(void)
{
	const struct walk_opts o = {.ignore = true, .fn = on_given, .ahead = on_ahead};
	struct walk_counts counts = {0};
	unsigned told_and_given = 0;
	char path[64];

	if (mkdirat(c.root_fd, "workspace/ahead", 0755) < 0)
		tap_fatal("mkdir");
	for (int i = 10; i < 40; i++) {
		(void)snprintf(path, sizeof(path), "workspace/ahead/f%d", i);
		put_text(&c, path, "");
	}
	put_text(&c, "workspace/ahead/.gitignore", "f3?\n");
	eq_int(walk_tree(c.root_fd, "/workspace/ahead", &o, &counts), 0, "a walk that looks ahead");
	for (size_t i = 0; i < ARRAY_SIZE(told); i++)
		told_and_given += told[i] == 2;
	eq_int(given, 20, "gives what no rule ignores");
	eq_int(told_and_given, 20, "and has told all of it");
}

/* The rules of a directory are its own: no link of the tree's leads to those of the host. Beside the root lies what a link
 * from it would find, were it followed from here. */
static void foreign_rules(void)
{
	char host[300];

	ok(!mkdirat(c.root_fd, "git", 0755) && !mkdirat(c.root_fd, "git/info", 0755) &&
		   !mkdirat(c.root_fd, "workspace/own-q", 0755) &&
		   !mkdirat(c.root_fd, "workspace/own-r", 0755) &&
		   !mkdirat(c.root_fd, "workspace/own-r/.git", 0755) &&
		   !mkdirat(c.root_fd, "workspace/own-s", 0755) &&
		   !mkdirat(c.root_fd, "workspace/own-s/.git", 0755) &&
		   !mkdirat(c.root_fd, "workspace/own-s/real", 0755),
	   "places");
	put_text(&c, "git/info/exclude", "secret\n");
	put_text(&c, "workspace/own-q/secret", "");
	put_text(&c, "workspace/own-r/secret", "");
	put_text(&c, "workspace/own-s/secret", "");
	put_text(&c, "workspace/own-s/real/exclude", "secret\n");
	(void)snprintf(host, sizeof(host), "%s/git", c.root);
	ok(!symlinkat(host, c.root_fd, "workspace/own-q/.git"), "a link to the host's");
	ok(has(call_tool(&c, &tool_glob, "{'pattern':'secret','path':'own-q'}"), "own-q/secret"),
	   "whose rules do not count");
	ok(!symlinkat("../../../git/info", c.root_fd, "workspace/own-r/.git/info"),
	   "one that climbs");
	ok(has(call_tool(&c, &tool_glob, "{'pattern':'secret','path':'own-r'}"), "own-r/secret"),
	   "as little");
	ok(!symlinkat("../real", c.root_fd, "workspace/own-s/.git/info"), "one that stays below");
	ok(has(call_tool(&c, &tool_glob, "{'pattern':'secret','path':'own-s'}"), "0 matches"),
	   "is followed");
	put_text(&c, "workspace/own-s/quiet", "");
	ok(has(call_tool(&c, &tool_glob, "{'pattern':'quiet','path':'own-s'}"), "own-s/quiet"),
	   "a file");
	put_text(&c, "workspace/own-s/.ignore", "quiet\n");
	ok(has(call_tool(&c, &tool_glob, "{'pattern':'quiet','path':'own-s'}"), "0 matches"),
	   "that .ignore names");
}

static struct answer *grep(const char *json);

/* So many that threads look into them before their turn; directories lie between files, and what they say is the same. */
static void many(void)
{
	static const char utf16[] = "\xff\xfen\0e\0e\0d\0l\0e\0";
	struct answer *a;
	char path[64];

	(void)mkdirat(c.root_fd, "workspace/many", 0755);
	for (int i = 0; i < 900; i++) {
		if (i % 30 == 0) {
			(void)snprintf(path, sizeof(path), "workspace/many/f%03dd", i);
			if (mkdirat(c.root_fd, path, 0755) < 0)
				tap_fatal("mkdir");
		}
		(void)snprintf(path, sizeof(path), "workspace/many/f%03d%s",
			       i % 2 ? i : i / 30 * 30, i % 2 ? "" : "d/g");
		if (i % 2 == 0)
			(void)snprintf(path + strlen(path), 8, "%03d", i);
		if (i % 100 == 50)
			put_file(&c, path, "needle\0", 7);
		else if (i % 100 == 51)
			put_file(&c, path, utf16, sizeof(utf16) - 1);
		else
			put_text(&c, path, i % 7 ? "hay\n" : "hay\nneedle\n");
	}
	a = grep("{'pattern':'needle','path':'many','output_mode':'count','max_matches':1000}");
	ok(has(a, "136 matches in 136 files (searched 891 files"),
	   "each of many files is searched once");
	a = grep("{'pattern':'ha[y]','path':'many','output_mode':'count','max_matches':1000}");
	ok(has(a, "882 matches in 882 files"), "also when all of them match");
	a = grep("{'pattern':'nowhere','path':'many'}");
	ok(has(a, "no matches"), "and when none does");
}

static struct answer *grep(const char *json)
{
	return call_tool(&c, &tool_grep, json);
}

static void searching(void)
{
	struct answer *a = grep("{'pattern':'foo','path':'p'}");

	ok(!a->error &&
		   has(a,
		       "6 matches in 4 files (searched 6 files; skipped 3 ignored dirs, 1 ignored files, 1 binary)\n"),
	   "header counts");
	ok(has(a, "p/src/a.c\n1: int foo;\n--\n3: int foo2; Foo\n--\n7: foo again\n"),
	   "grouped, gaps shown");
	ok(has(a, "p/.env.example\n") && has(a, "p/src/keep.log\n") &&
		   !strstr(a->text, "drop.log") && !strstr(a->text, "out/gen.c") &&
		   !strstr(a->text, "node_modules") && !strstr(a->text, ".git/"),
	   "ignore rules, nested and taken back; hidden files are searched");
	a = grep("{'pattern':'foo','path':'p/src/a.c','context':1}");
	ok(has(a, "1: int foo;\n2- // nothing\n3: int foo2; Foo\n4- \n--\n6- \n7: foo again\n"),
	   "context");
	a = grep("{'pattern':'Foo','path':'p','output_mode':'count'}");
	ok(has(a, "1 p/src/a.c\n") && has(a, "1 match in 1 file"), "smart case, count");
	a = grep("{'pattern':'Foo','path':'p','output_mode':'files_with_matches','-i':true,"
		 "'include':'a.c','head_limit':5}");
	ok(!a->error && has(a, "src/a.c") && !has(a, "b.h"), "as other tools call it");
	a = grep("{'pattern':'foo','path':'p','output_mode':'files','glob':'*.{c,h} !b.*'}");
	ok(has(a, "p/src/a.c  (3)\n") && !strstr(a->text, "b.h"), "files with a filter");
	a = grep("{'pattern':'OnlyHere','path':'p'}");
	ok(!a->error && has(a, "no matches for /OnlyHere/ in p") && has(a, "1 ignored files match"),
	   "no match is no error");
	a = grep("{'pattern':'INT FOO','path':'p'}");
	ok(has(a, "2 files match with case ignored"), "hint on case");
	a = grep("{'pattern':'zzz\\\\|yyy','path':'p'}");
	ok(has(a, "write a|b"), "hint on dialect");
	a = grep("{'pattern':'OnlyHere','path':'p/out'}");
	ok(has(a, "1 match in 1 file"), "an ignored directory that is named is searched");
	a = grep("{'pattern':'a(b','path':'p'}");
	ok(a->error && has(a, "at position 3") && has(a, "literal:true"), "a broken pattern");
	a = grep("{'pattern':'foo;\\\\n// n','path':'p','multiline':true}");
	ok(has(a, "1: int foo;\n2: // nothing\n"), "across lines");
	a = grep("{'pattern':'foo','path':'p','max_matches':2}");
	ok(has(a, "[2 of 6 shown; next: offset=2]"), "a page");
	a = grep("{'pattern':'foo','path':'p','max_matches':2,'offset':2}");
	ok(has(a, "3: int foo2; Foo\n--\n7: foo again\n") && has(a, "next: offset=4]"),
	   "the next page");
	a = grep("{'pattern':'foo','path':'missing'}");
	ok(a->error && has(a, "no such file"), "a path that is not there");
	put_text(&c, "workspace/u16grep", "");
	put_file(&c, "workspace/u16grep",
		 "\xff\xfe"
		 "f\0o\0o\0\n\0",
		 10);
	ok(has(grep("{'pattern':'foo','path':'u16grep'}"), "1: foo\n"), "UTF-16 is searched");
}

static void bounded_search(void)
{
	struct buf b = {0};
	struct answer *a;

	for (int i = 0; i < 3000; i++)
		if (buf_printf(&b, "needle %d\n", i) < 0)
			tap_fatal("memory");
	put_file(&c, "workspace/p/many1", b.data, b.len);
	put_file(&c, "workspace/p/many2", b.data, b.len);
	a = grep("{'pattern':'needle','path':'p'}");
	ok(has(a, "6000 matches in 2 files") && has(a, "p/many1\n") && has(a, "p/many2\n") &&
		   has(a, "[2980 more in this file]"),
	   "one file does not eat the list");
	buf_clear(&b);
	for (int i = 0; i < 30000; i++)
		if (buf_puts(&b, "x") < 0)
			tap_fatal("memory");
	(void)!buf_puts(&b, "needle2");
	for (int i = 0; i < 30000; i++)
		if (buf_puts(&b, "y") < 0)
			tap_fatal("memory");
	put_file(&c, "workspace/p/min.js", b.data, b.len);
	a = grep("{'pattern':'needle2','path':'p/min.js'}");
	ok(has(a, "1: …xxx") && has(a, "xneedle2y") && strlen(a->text) < 700,
	   "a window of a long line");
	buf_release(&b);
}

static void listing(void)
{
	struct answer *a = call_tool(&c, &tool_list_dir, "{'path':'p'}");

	ok(!a->error &&
		   has(a,
		       "p  11 entries\n.git/ (ignored, 1 entry)\nnode_modules/ (ignored, 1 entry)\n"
		       "out/ (ignored, 1 entry)\nsrc/\n"),
	   "directories first, ignored ones named");
	ok(has(a, "\nself -> .\n") && has(a, "bin  8 B\n"), "links and sizes");
	a = call_tool(&c, &tool_list_dir, "{'path':'p','depth':2,'max_entries':6}");
	ok(has(a, "src/.gitignore  10 B\nsrc/a.c  47 B\n"), "two levels");
	ok(has(a, " more; raise max_entries"), "bounded");
	a = call_tool(&c, &tool_list_dir, "{'path':'p/src/b.h'}");
	ok(has(a, "p/src/b.h  file 0644  16 B  2") && has(a, "1 lines utf-8 LF  v:"),
	   "a file's facts");
	a = call_tool(&c, &tool_list_dir, "{'path':'nix'}");
	ok(a->error && has(a, "no such file"), "missing");
	a = call_tool(&c, &tool_list_dir, "{'path':'/'}");
	ok(has(a, "workspace/\n"), "the whole view can be listed");
}

static void globbing(void)
{
	struct answer *a;
	struct timespec t[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	ok(!utimensat(c.root_fd, "workspace/p/src/a.c", t, 0), "an old file");
	a = call_tool(&c, &tool_glob, "{'pattern':'*.{c,h}','path':'p'}");
	ok(!a->error && has(a, "2 matches for *.{c,h} in p") && has(a, "p/src/b.h\np/src/a.c\n"),
	   "newest first");
	a = call_tool(&c, &tool_glob,
		      "{'pattern':'**/*.c','path':'p','use_default_ignore':false,'sort':'path'}");
	ok(has(a, "p/out/gen.c\np/src/a.c\n"), "with ignored ones, by path");
	a = call_tool(&c, &tool_glob, "{'pattern':'/workspace/p/s*/*.h'}");
	ok(has(a, "p/src/b.h\n"), "an absolute pattern");
	a = call_tool(&c, &tool_glob, "{'pattern':'*.nix'}");
	ok(!a->error && has(a, "0 matches"), "none is no error");
}

static void too_deep(void)
{
	int fd = openat(c.root_fd, "workspace", O_PATH | O_DIRECTORY | O_CLOEXEC), next = fd;

	for (int i = 0; i < 203 && next >= 0; i++) {
		(void)!mkdirat(fd, i ? "d" : "well", 0755);
		next = openat(fd, i ? "d" : "well", O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)close(fd);
		fd = next;
	}
	ok(fd >= 0, "a well of 203 directories");
	(void)close(fd);
	ok(has(grep("{'pattern':'zzz','path':'well'}"),
	       "; 1 directories lie too deep and were left out"),
	   "what grep does not look at is told");
	ok(has(call_tool(&c, &tool_glob, "{'pattern':'x','path':'well'}"), ", not complete"),
	   "and what glob does not");
}

static void cancelling(void)
{
	c.cancelled = true;
	eq_int(grep("{'pattern':'foo','path':'p'}")->r, -ECANCELED,
	       "a search ends when it is cancelled");
	c.cancelled = false;
}

/* A small file answers in well under a millisecond. */
static void speed(void)
{
	long long start;

	put_text(&c, "workspace/a.txt", "one\ntwo\nthree\n");
	start = io_now_ms();
	for (int i = 0; i < 1000; i++)
		(void)read_file("{'path':'a.txt'}");
	start = io_now_ms() - start;
	printf("# 1000 reads in %lld ms\n", start);
	ok(start < 2000, "1000 reads in less than 2 s");
}

int main(void)
{
	env_open(&c);
	reading();
	bytes();
	big_files();
	endless();
	refusals();
	links();
	writing();
	keeping();
	editing();
	racing();
	no_leftovers();
	foreign_rules();
	ahead();
	many();
	tree();
	searching();
	bounded_search();
	listing();
	globbing();
	too_deep();
	cancelling();
	speed();
	cJSON_Delete(read_file("{'path':'a.txt'}")->meta);
	env_close(&c);
	return tap_done();
}
