/* rattan bootstrap debian, in two stages: mmdebstrap or debootstrap of this host unpacks, then the new tree configures itself. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/bootstrap.h"

#define SOURCES_MAX (1u << 20)
#define MISSING     41

/* $1 suite, $2 mirror, $3 variant, $4 packages, $5 components, $6 tool or nothing, $7: a keyring comes on standard input. "container":
 * debootstrap's own test for devices would open one. mmdebstrap only unpacks, as debootstrap --foreign: in a chroot the programs of
 * packages would have neither /proc nor devices that can be opened. It leaves packages and lists for the second stage. */
static const char unpack[] =
	"set -eu\n" BOOT_DOING "tool=$6\n"
	"for t in mmdebstrap debootstrap; do [ -n \"$tool\" ] || ! command -v $t >/dev/null || tool=$t; done\n"
	"command -v \"${tool:-debootstrap}\" >/dev/null || exit 41\n"
	"key=\n"
	"[ -z \"$7\" ] || { key=/tmp/keyring.gpg; cat > $key; }\n"
	"export container=lxc\n"
	"doing $tool\n"
	"if [ $tool = debootstrap ]; then\n"
	"[ \"$3\" = - ] && set -- \"$1\" \"$2\" '' \"$4\" \"$5\"\n"
	"exec debootstrap --foreign --force-check-gpg ${key:+--keyring=$key} ${3:+--variant=\"$3\"} ${4:+--include=\"$4\"} --components=\"$5\" "
	"\"$1\" /workspace/root \"$2\" >&2\n"
	"fi\n"
	"case $3 in\n"
	"minbase) what= ;;\n"
	"buildd) what=,build-essential ;;\n"
	"-) what=',?priority(important)' ;;\n"
	"*) echo \"mmdebstrap makes minbase, buildd and - here, not $3\" >&2; exit 1 ;;\n"
	"esac\n"
	"exec mmdebstrap --mode=root --variant=extract --skip=chroot/mount,cleanup/apt --aptopt='APT::Sandbox::User \"root\"' ${key:+--keyring=$key} "
	"--components=\"$5\" --include='?or(?essential,?priority(required))' --include=\"apt$what\" ${4:+--include=\"$4\"} "
	"\"$1\" /workspace/root \"$2\" >&2\n";

static const char pack_first[] =
	"exec tar -C /workspace/root --numeric-owner --xattrs --xattrs-include=security.capability -cf - .\n";

/* $6: SOURCE_DATE_EPOCH or nothing; a directory's content comes on standard input with $7. */
static const char configure[] =
	"set -eu\n" BOOT_DOING "export container=lxc\n"
	"e=$6\n"
	"[ -n \"$e\" ] || e=$(date -d \"$(sed -n 's/^Date: //p' /var/lib/apt/lists/*Release | head -n 1)\" +%s)\n"
	"export SOURCE_DATE_EPOCH=$e\n"
	"if [ -x /debootstrap/debootstrap ]; then doing 'debootstrap --second-stage'; /debootstrap/debootstrap --second-stage >&2; rm -rf /debootstrap; else\n"
	/* Packages that all others may take for granted come first, together; then apt has its order. No script starts a service. */
	"export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true\n"
	"printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d\n"
	"cd /var/cache/apt/archives\n"
	"first=; all=\n"
	"for p in $(apt-get -s -o Dir::State::status=/dev/null dist-upgrade | sed -n 's/^Inst \\([^ :]*\\).*/\\1/p'); do\n"
	"for f in \"$p\"_*.deb; do [ ! -e \"$f\" ] || first=\"$first $f\"; done; done\n"
	"doing 'configuring what is essential (dpkg)'\n"
	"[ -z \"$first\" ] || dpkg --install --force-depends $first >&2\n"
	"for f in *.deb; do all=\"$all $(dpkg-deb -f \"$f\" Package)\"; done\n"
	"doing 'configuring packages (apt-get)'\n"
	"apt-get -y --no-download --no-install-recommends install $all >&2\n"
	"cd /; rm -f /usr/sbin/policy-rc.d /etc/apt/apt.conf.d/99mmdebstrap /etc/apt/sources.list.d/*; fi\n"
	"doing settings\n"
	"echo \"deb $2 $1 $(echo \"$5\" | tr , ' ')\" > /etc/apt/sources.list\n"
	"echo 'APT::Sandbox::User \"root\";' > /etc/apt/apt.conf.d/90rattan\n"
	"if ! grep -q '^[^:]*:[^:]*:1000:' /etc/passwd; then\n"
	"echo 'user:x:1000:1000::/home/user:/bin/bash' >> /etc/passwd; echo 'user:x:1000:' >> /etc/group\n"
	"echo \"user:*:$((e / 86400)):0:99999:7:::\" >> /etc/shadow; echo 'user:!::' >> /etc/gshadow; fi\n"
	"[ -z \"$7\" ] || tar -C / -xpf - --no-same-owner\n"
	/* What a machine has of its own, and what tells of the making: none of it is the tree. */
	"rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old "
	"/etc/resolv.conf /etc/hostname /var/log/bootstrap.log /var/log/dpkg.log /var/log/alternatives.log /var/log/apt "
	"/etc/passwd- /etc/group- /etc/shadow- /etc/gshadow-\n"
	"mkdir -p /var/cache/apt/archives/partial /var/lib/apt/lists/partial /var/log/apt\n"
	"[ ! -e /etc/machine-id ] || : > /etc/machine-id\n"
	"find /var/log -type f -exec sh -c ': > \"$1\"' - {} \\;\n" BOOT_PACK
	"--mtime=@$e --clamp-mtime --exclude=./home/user -cf - .\n";

/* ---- the mirror ---- */

struct source {
	char *uri, *suite;
};

static void source_release(struct source *s)
{
	free(s->uri);
	free(s->suite);
}

static char *word_at(const char *s)
{
	s += strspn(s, " \t");
	return strndup(s, strcspn(s, " \t\n"));
}

/* "deb [options] URI SUITE ..." and "URIs: ..." with "Suites: ...": the first of them. */
static int read_source(const char *path, struct source *ret)
{
	cleanup_buf struct buf b = {0};
	char *line, *at;
	int r = io_read_file(AT_FDCWD, path, SOURCES_MAX, &b);

	if (r < 0 || !b.len)
		return r == -ENOMEM ? r : 0;
	for (at = (char *)b.data; (line = strsep(&at, "\n")) && !(ret->uri && ret->suite);) {
		if (!strncmp(line, "deb ", 4) && !ret->uri) {
			char *u = strstr(line, "://");

			while (u && u > line && u[-1] != ' ')
				u--;
			ret->uri = u ? word_at(u) : NULL;
			ret->suite = u ? word_at(u + strcspn(u, " ")) : NULL;
		} else if (!strncmp(line, "URIs:", 5) && !ret->uri) {
			ret->uri = word_at(line + 5);
		} else if (!strncmp(line, "Suites:", 7) && !ret->suite) {
			ret->suite = word_at(line + 7);
		}
	}
	return 0;
}

static int find_source(struct source *ret)
{
	static const char dir[] = "/etc/apt/sources.list.d";
	struct dirent **v = NULL;
	int r = read_source("/etc/apt/sources.list", ret);
	int n = ret->uri ? 0 : scandir(dir, &v, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(v[i]->d_name, '.');
		char path[400];

		if (r == 0 && !ret->uri && dot &&
		    (!strcmp(dot, ".sources") || !strcmp(dot, ".list"))) {
			(void)snprintf(path, sizeof(path), "%s/%s", dir, v[i]->d_name);
			r = read_source(path, ret);
		}
		free(v[i]);
	}
	free(v);
	return r;
}

static int allow_mirror(struct boot *b, const char *mirror)
{
	const char *host = strstr(mirror, "://");
	cleanup_free char *name = NULL;
	struct diag diag = {0};
	int r;

	if (!host || strncmp(mirror, "http", 4) != 0)
		return cli_fail(CLI_USAGE,
				"bootstrap: the mirror '%s' is no http:// or https:// URL", mirror);
	host += 3;
	name = strndup(host, strcspn(host, ":/"));
	r = name ? net_allow(&b->net, name, &diag) : -ENOMEM;
	return r < 0 ? cli_fail_errno(r, &diag, "bootstrap: the mirror's host") : -1;
}

/* ---- the steps ---- */

static int second(struct boot *b, const char *const *words, int out_fd)
{
	const struct boot_step s = {.base = b->base,
				    .what = "configuring",
				    .script = configure,
				    .words = words,
				    .dir = b->args->add,
				    .remedy = BOOT_REMEDY_SCRIPT,
				    .out_fd = out_fd};

	boot_env(b);
	return boot_run(b, &s);
}

static int make(struct boot *b, const char *suite, const char *mirror)
{
	cleanup_fd int first = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	cleanup_fd int last = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	const char *epoch = getenv("SOURCE_DATE_EPOCH");
	cleanup_buf struct buf packages = {0};
	const char *words[] = {suite,
			       mirror,
			       b->args->variant,
			       "",
			       b->args->components,
			       b->args->tool ? b->args->tool : "",
			       b->args->keyring ? "yes" : "",
			       NULL};
	struct boot_step s = {
		.base = "host",
		.what = "fetching and unpacking",
		.script = unpack,
		.words = words,
		.online = true,
		.file = b->args->keyring,
		.remedy = "the suite, --components and the packages of --include have "
			  "to be on that mirror; --mirror names another, --keyring who signs it",
		.out_fd = -1,
		.not_there = MISSING};
	int r = 0;

	if (first < 0 || last < 0)
		return cli_fail_errno(ret_nerrno(), NULL,
				      "bootstrap: a temporary file in /var/tmp");
	for (size_t i = 0; r == 0 && i < b->args->include.n; i++)
		r = buf_printf(&packages, "%s%s", i ? "," : "", b->args->include.v[i]);
	if (r < 0)
		return cli_fail_errno(r, NULL, "bootstrap");
	if (packages.len)
		words[3] = (const char *)packages.data;
	boot_env(b);
	r = boot_run(b, &s);
	if (r == -2)
		return cli_fail(CLI_FAILED,
				"bootstrap: there is no %s on this host; install the package "
				"%s, or import a root file system that was made elsewhere "
				"(rattan import --help)",
				b->args->tool ? b->args->tool : "mmdebstrap and no debootstrap",
				b->args->tool ? b->args->tool : "mmdebstrap");
	s = (struct boot_step){
		.base = "host", .what = "packing", .script = pack_first, .out_fd = first};
	if (r == -1)
		r = boot_run(b, &s);
	if (r == -1)
		r = boot_import(b, first, b->base, 0);
	words[5] = epoch ? epoch : "";
	words[6] = b->args->add ? "yes" : "";
	if (r == -1)
		r = second(b, words, last);
	return r == -1 ? boot_seal(b, last) : r;
}

int bootstrap_debian(const struct boot_args *a)
{
	__attribute__((cleanup(source_release))) struct source host = {0};
	const char *mirror, *suite;
	struct boot b;
	int r;

	if ((!a->mirror || !a->suite) && find_source(&host) < 0)
		return cli_fail_errno(-ENOMEM, NULL, "bootstrap");
	mirror = a->mirror ? a->mirror : host.uri;
	suite = a->suite ? a->suite : host.suite ? host.suite : "stable";
	if (!mirror)
		return cli_fail(
			CLI_USAGE,
			"bootstrap: this host has no list of Debian mirrors; give --mirror URL");
	r = boot_begin(&b, a);
	if (r < 0)
		r = allow_mirror(&b, mirror);
	if (r < 0)
		r = make(&b, suite, mirror);
	boot_end(&b);
	return r;
}
