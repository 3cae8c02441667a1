/* What may be asked of pacman: every option that it knows, in every spelling; names of packages; mirrors. */
#include "client/pacman.h"

#include "tests/lib/tap.h"

/* Words with blanks between. */
static int ask(const char *text, struct diag *diag)
{
	char copy[512];
	const char *v[32];
	size_t n = 0;

	(void)snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok(copy, " "); w && n < 32; w = strtok(NULL, " "))
		v[n++] = w;
	return pacman_check_query(v, n, diag);
}

static void queries(void)
{
	static const char *const good[] = {"-Q",
					   "-Q bash",
					   "-Qi bash",
					   "-Qii bash",
					   "-Ql bash",
					   "-Qo /usr/bin/env",
					   "-Qq",
					   "-Qqe",
					   "-Qdt",
					   "-Qdtq",
					   "-Qm",
					   "-Qn",
					   "-Qu",
					   "-Qk",
					   "-Qkk bash",
					   "-Qc bash",
					   "-Qg",
					   "-Qs regex",
					   "-Qp x.pkg.tar.zst",
					   "--query",
					   "--query --info bash",
					   "-Q --quiet --list bash",
					   "-S -s git",
					   "-Ss git",
					   "-Ssq git",
					   "-Si git",
					   "-Sii git",
					   "-Sl",
					   "-Slq core",
					   "-Sg",
					   "-Sgg",
					   "-Sp git",
					   "-Sp --print-format %n git",
					   "--print-format=%n -Sp git",
					   "--sync --search git",
					   "-sS git",
					   "-F vim",
					   "-Fl vim",
					   "-Fx vi.*",
					   "-F --machinereadable vim",
					   "-T bash gcc",
					   "--deptest bash",
					   "-V",
					   "--version",
					   "-h",
					   "--help",
					   "-Qh",
					   "-Sh",
					   "--color never -Q",
					   "--color=auto -Q",
					   "-Q --debug",
					   "-Qv",
					   "-Q --noconfirm",
					   "-Q -- -name",
					   "bash -Q",
					   "-S -h"};
	static const char *const bad[] = {
		/* changes */
		"-S git", "-Sy", "-Syy", "-Su", "-Syu", "-Syu git", "-Sw git", "-Sc", "-Scc",
		"-Ssy git", "-Sys git", "-Siu", "-Slc", "-Sq git", "-R bash", "-Rns bash", "-Rs",
		"-U x.pkg.tar.zst", "-U https://example.com/x", "-D --asdeps bash", "-Dk", "-Fy",
		"-Fyy", "-Fly", "-Qy", "-Qw", "--sync git", "--sync --refresh", "--remove bash",
		"--upgrade x", "--database x", "--sync --search --refresh x", "--sync --clean",
		"-S --print-format %n git", "-Qi -R bash", "-Q -S git", "-QS", "-Q --sync x",
		/* options that take elsewhere, and beginnings of them */
		"-Q --root /x", "-Q --root=/x", "-Q -r /x", "-Qr /x", "-Q -b /x", "-Qb/x",
		"-Q --dbpath /x", "-Q --dbp /x", "-Q --config /x", "-Q --conf /x", "-Q --co /x",
		"-Q --cachedir /x", "-Q --gpgdir /x", "-Q --hookdir /x", "-Q --logfile /x",
		"-Q --sysroot /x", "-Q --arch x", "-Sp --ignore x y", "-Sp --ignoregroup x y",
		"-Sp --assume-installed x y", "-Sp --overwrite x y",
		"-Q --disable-download-timeout",
		/* spellings */
		"-Q --quie", "-Q --inf bash", "-Q --li", "--quer", "-Q --info=x", "-Q --needed",
		"-Sp --dbonly x", "-Sp --noscriptlet x", "-Sp --asdeps x", "-Sp --downloadonly x",
		"-Q -", "-Q \x01", "-Q -\xc3\xb6", "-Q --", "bash", "--color always", "-Q --color",
		"-q", "-v", "--", "-Q ---", "-Q --=x", "-Z"};
	struct diag d;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		d = (struct diag){0};
		eq_int(ask(good[i], &d), 0, "allowed: %s", good[i]);
		tap_note(d.text, sizeof(d.text));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		/* two that are only odd, and harmless */
		bool odd = !strcmp(bad[i], "-Q \x01") || !strcmp(bad[i], "-Q --");

		d = (struct diag){0};
		if (odd)
			eq_int(ask(bad[i], &d), 0, "harmless");
		else
			ok(ask(bad[i], &d) == -EINVAL && *d.text, "refused: %s", bad[i]);
	}
	d = (struct diag){0};
	ok(ask("-Sy git", &d) == -EINVAL && strstr(d.text, "pacman_install"),
	   "who wants to install is told how");
	eq_int(pacman_check_query(NULL, 0, &d), -EINVAL, "nothing");
}

static void packages(void)
{
	static const char *const good[] = {"tree",        "extra/git",    "gcc-libs",
					   "lib32-glibc", "c++utilities", "python>=3.11",
					   "a=1:2.0-1",   "gtk2+extra",   "7zip",
					   "x@y",         "_pkg",         "zlib<2"};
	static const char *const bad[] = {
		"",     "-y",     "--root",      ".hidden", "a b",   "a;b",   "a/b/c", "/etc",
		"../x", "a/../b", "https://x/y", "a\n",     "a>=",   "a=>>1", "a//b",  "a/",
		"/a",   "a/-b",   "$(x)",        "a*",      "a\x80", "a=1=2", "a:b"};
	char lots[300];
	struct diag d;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		eq_int(pacman_check_package(good[i], &d), 0, "a package: %s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		d = (struct diag){0};
		ok(pacman_check_package(bad[i], &d) == -EINVAL && *d.text, "none: %zu", i);
	}
	memset(lots, 'a', sizeof(lots) - 1);
	lots[sizeof(lots) - 1] = 0;
	eq_int(pacman_check_package(lots, &d), -EINVAL, "a long one");
}

static void mirrors(void)
{
	static const char *const own[] = {"https://mirror.example.com:8443/",
					  "http://127.0.0.1:4000", "http://example.com", NULL};
	static const struct {
		const char *url, *server;
	} good[] = {
		{"https://geo.mirror.pkgbuild.com",
		 "https://geo.mirror.pkgbuild.com/$repo/os/$arch"},
		{"https://geo.mirror.pkgbuild.com/",
		 "https://geo.mirror.pkgbuild.com/$repo/os/$arch"},
		{"https://geo.mirror.pkgbuild.com/$repo/os/$arch",
		 "https://geo.mirror.pkgbuild.com/$repo/os/$arch"},
		{"https://mirrors.kernel.org/archlinux",
		 "https://mirrors.kernel.org/archlinux/$repo/os/$arch"},
		{"https://archive.archlinux.org/repos/2024/01/01",
		 "https://archive.archlinux.org/repos/2024/01/01/$repo/os/$arch"},
		{"https://archlinux.org", "https://archlinux.org/$repo/os/$arch"},
		{"https://mirror.rackspace.com:443/archlinux",
		 "https://mirror.rackspace.com:443/archlinux/$repo/os/$arch"},
		{"https://archlinux.c3sl.ufpr.br", "https://archlinux.c3sl.ufpr.br/$repo/os/$arch"},
		{"https://mirror.archlinux.de", "https://mirror.archlinux.de/$repo/os/$arch"},
		{"https://mirror.leaseweb.net/x/", "https://mirror.leaseweb.net/x/$repo/os/$arch"},
		{"https://ftp.heanet.ie/a", "https://ftp.heanet.ie/a/$repo/os/$arch"},
		{"https://ftp.surfnet.nl", "https://ftp.surfnet.nl/$repo/os/$arch"},
		{"https://mirror.example.com:8443/arch",
		 "https://mirror.example.com:8443/arch/$repo/os/$arch"},
		{"http://127.0.0.1:4000/$repo", "-"},
		{"http://127.0.0.1:4000/r", "http://127.0.0.1:4000/r/$repo/os/$arch"},
	};
	static const char *const bad[] = {"",
					  "https://",
					  "geo.mirror.pkgbuild.com",
					  "http://geo.mirror.pkgbuild.com",
					  "ftp://mirrors.kernel.org",
					  "file:///etc",
					  "HTTPS://archlinux.org",
					  "https://evil.example.com",
					  "https://evilarchlinux.org",
					  "https://archlinux.org.evil.com",
					  "https://archlinux.org@evil.com",
					  "https://user:pw@archlinux.org",
					  "https://evil.com/@archlinux.org",
					  "https://evil.com/archlinux.org",
					  "https://evil.com?archlinux.org",
					  "https://evil.com#.archlinux.org",
					  "https://evil.com\\.archlinux.org",
					  "https://archlinux.org/../x",
					  "https://archlinux.org/a/..",
					  "https://archlinux.org/a/./b",
					  "https://archlinux.org//x",
					  "https://archlinux.org/%2e%2e",
					  "https://archlinux.org/x?y",
					  "https://archlinux.org/x#y",
					  "https://archlinux.org/a b",
					  "https://archlinux.org/a\nServer = https://evil.com",
					  "https://archlinux.org/$home",
					  "https://archlinux.org/$(x)",
					  "https://archlinux.org/`x`",
					  "https://archlinux.org/os/$arch",
					  "https://archlinux.org:0",
					  "https://archlinux.org:99999",
					  "https://archlinux.org:",
					  "https://archlinux.org:x",
					  "https://archlinux.org:443:1",
					  "https://1.2.3.4",
					  "https://[::1]",
					  "https://127.0.0.1",
					  "http://127.0.0.1",
					  "http://127.0.0.1:4001",
					  "http://localhost:4000",
					  "https://.archlinux.org",
					  "https://-x.archlinux.org",
					  "https://x-.archlinux.org",
					  "https://a..archlinux.org",
					  "https://archlinux.de",
					  "https://x.archlinux.dee",
					  "https://X.archlinux.org",
					  "https://kernel.org.",
					  "https://mirror.example.com",
					  "https://mirror.example.com:84430",
					  "https://mirror.example.com:8443x",
					  "http://example.com/x",
					  "https://0x7f.1",
					  "https://2130706433"};
	struct pacman_mirror m;
	struct diag d;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		d = (struct diag){0};
		if (*good[i].server == '-') {
			ok(pacman_check_mirror(good[i].url, own, &m, &d) == 0 ||
				   strstr(d.text, "mirror"),
			   "$repo at the end");
			continue;
		}
		eq_int(pacman_check_mirror(good[i].url, own, &m, &d), 0, "allowed: %s",
		       good[i].url);
		eq_str(m.server, good[i].server, "as pacman has it");
		tap_note(d.text, sizeof(d.text));
	}
	ok(m.local && !strcmp(m.host, "127.0.0.1"), "one on this machine, which the settings have");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		d = (struct diag){0};
		ok(pacman_check_mirror(bad[i], own, &m, &d) == -EINVAL && *d.text, "refused: %zu",
		   i);
	}
	eq_int(pacman_check_mirror("https://mirror.example.com:8443/arch", NULL, &m, &d), -EINVAL,
	       "without the settings it is not known");
}

static int count(void *arg, const struct pacman_mirror *m)
{
	(void)snprintf(arg, 2048, "%s %s", m->host, m->server);
	return 0;
}

static void lists(void)
{
	static const char list[] =
		"# Server = https://mirrors.kernel.org/archlinux/$repo/os/$arch\n"
		"Server=http://mirrors.kernel.org/archlinux/$repo/os/$arch\n"
		"  Server  =  https://geo.mirror.pkgbuild.com/$repo/os/$arch  \n"
		"Server = https://evil.example.com/$repo/os/$arch\nServers = x\nServer";
	char last[2048] = "";

	eq_int(pacman_mirrors(list, sizeof(list) - 1, NULL, count, last), 0, "a mirror list");
	eq_str(last, "geo.mirror.pkgbuild.com https://geo.mirror.pkgbuild.com/$repo/os/$arch",
	       "only those that are allowed");
}

int main(void)
{
	queries();
	packages();
	mirrors();
	lists();
	return tap_done();
}
