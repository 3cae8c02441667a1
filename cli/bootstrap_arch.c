/* rattan bootstrap arch, from the official archive or by the host's pacman: pacman of the tree itself does the work, as its root. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/bootstrap.h"
#include "cli/bootstrap_plan.h"
#include "cli/config.h"
#include "client/pacman.h"

/* What makes an Arch of the archive: nothing that only a machine needs, and no time or random number of today. $1 lines for the mirror
 * list, $2 packages, $3 "yes": an upgrade without any. */
static const char set_up_script[] =
	"set -eu; umask 022; export LC_ALL=C.UTF-8; exec >&2\n" BOOT_DOING
	"doing 'looking at the tree'\n"
	"[ -x /usr/bin/pacman ] && command -v bash > /dev/null || { echo 'the archive has no pacman, or no bash' >&2; exit 1; }\n"
	"edit() { sed \"$2\" \"$1\" > \"$1.new\"; cat \"$1.new\" > \"$1\"; rm \"$1.new\"; }\n"
	"doing 'settings and the user'\n"
	"mkdir -p /etc/pacman.d /var/lib/pacman /var/cache/pacman/pkg\n"
	"if [ -n \"$1\" ]; then printf '%s' \"$1\" > /etc/pacman.d/mirrorlist; fi\n"
	/* Both have no meaning, or no right, in here. */
	"edit /etc/pacman.conf 's/^ *DownloadUser/#&/; s/^ *CheckSpace/#&/'\n"
	"if pacman --version | grep -q 'v[789]\\.'; then\n"
	"  grep -q '^DisableSandbox' /etc/pacman.conf || edit /etc/pacman.conf '/^\\[options\\]/a DisableSandbox'\n"
	"fi\n"
	"grep -q '^user:' /etc/passwd || echo 'user:x:1000:1000::/home/user:/bin/bash' >> /etc/passwd\n"
	"grep -q '^user:' /etc/group || echo 'user:x:1000:' >> /etc/group\n"
	"[ ! -e /etc/shadow ] || grep -q '^user:' /etc/shadow || echo 'user:!:::::::' >> /etc/shadow\n"
	"mkdir -p /home/user; chown 1000:1000 /home/user; chmod 700 /home/user\n"
	"[ -n \"$2$3\" ] || exit 0\n"
	"k=/etc/pacman.d/gnupg\n"
	"doing 'the keyring (pacman-key)'\n"
	"if command -v pacman-key > /dev/null && [ ! -e $k/trustdb.gpg ]; then pacman-key --init; pacman-key --populate; fi\n"
	/* Who only looks notes the day in trustdb.gpg. Where no key and no trust is another, what it was is as good. */
	"keys() { cksum $k/pubring.* && gpg --homedir $k --batch --no-permission-warning --export-ownertrust; }\n"
	"before=$(keys 2> /dev/null) && cp -p $k/trustdb.gpg /tmp/trustdb || before=\n"
	"doing 'installing packages (pacman -Syu)'\n"
	"pacman -Syu --noconfirm --needed --disable-download-timeout -- $2\n"
	"if [ -n \"$before\" ] && [ \"$(keys 2> /dev/null | grep -v '^#')\" = \"$(echo \"$before\" | grep -v '^#')\" ]; then\n"
	"  cp -p /tmp/trustdb $k/trustdb.gpg\n"
	"fi\n";

/* Nothing of today: what was fetched, what was logged, and times. $1: what is younger is of today. Then it is packed. */
static const char last_script[] =
	"set -eu; export LC_ALL=C.UTF-8\n"
	"edit() { sed \"$2\" \"$1\" > \"$1.new\"; cat \"$1.new\" > \"$1\"; rm \"$1.new\"; }\n"
	"for d in /var/lib/pacman/local/*/desc; do\n"
	"  [ ! -e \"$d\" ] || edit \"$d\" '/^%INSTALLDATE%$/{n;s/.*/946684800/}'\n"
	"done\n"
	"rm -rf /var/cache/pacman/pkg/* /var/log/pacman.log /var/cache/ldconfig/aux-cache /tmp/* /tmp/.[!.]*\n"
	"rm -f /etc/pacman.d/gnupg/random_seed /etc/pacman.d/gnupg/S.* /etc/pacman.d/gnupg/*~\n"
	"all() { find / -xdev \\( -path /proc -o -path /dev -o -path /sys -o -path /init \\) -prune -o \"$@\"; }\n"
	"all -newermt \"@$1\" -exec touch -h -d @946684800 {} +\n"
	/* What is mounted here is of today and cannot be touched: it has the time of the youngest. */
	"e=$(all -printf '%T@\\n' | sort -n | tail -n 1); e=$((${e%.*} + 1))\n" BOOT_PACK
	"-cf - .\n";

static const char put_script[] = "set -eu; mkdir -p \"$1\"\n"
				 "exec tar -C \"$1\" -xpf - --no-same-owner\n";

#define HOST_LIST "/etc/pacman.d/mirrorlist"
#define LIST_MAX  (1u << 20)

struct serving {
	struct boot *b;
	struct buf servers; /* for the mirror list */
	struct diag diag;
};

static int add_mirror(void *arg, const struct pacman_mirror *m)
{
	struct serving *s = arg;
	int r = buf_printf(&s->servers, "Server = %s\n", m->server);

	if (r == 0)
		r = net_allow(&s->b->net, m->host, &s->diag);
	s->b->net.local |= m->local;
	return r;
}

/* Who lets this host's pacman work, and names no mirror, means the host's. */
static int host_mirrors(struct serving *s, const char *const *own)
{
	cleanup_buf struct buf list = {0};
	int r = io_read_file(AT_FDCWD, HOST_LIST, LIST_MAX, &list);

	if (r == 0)
		r = pacman_mirrors((const char *)list.data, list.len, own, add_mirror, s);
	return r < 0 && r != -ENOENT ? r
	       : s->servers.len
		       ? 0
		       : diag_set(
				 &s->diag, -EINVAL,
				 "packages come from a mirror, and this host's " HOST_LIST
				 " has none that is known: name one in \"mirrors\" of a --config, "
				 "best one of a day, as "
				 "https://archive.archlinux.org/repos/2026/01/15, so that the same "
				 "comes again");
}

/* Servers for the mirror list, and the hosts that may be reached. */
static int mirrors(struct serving *s, const struct bootstrap_plan *p, const char *const *own)
{
	const cJSON *v;
	int r = 0;

	cJSON_ArrayForEach(v, p->mirrors)
	{
		struct pacman_mirror m;

		if (r == 0)
			r = pacman_check_mirror(v->valuestring, own, &m, &s->diag);
		if (r == 0)
			r = add_mirror(s, &m);
	}
	if (r == 0 && !p->archive && !s->servers.len)
		r = host_mirrors(s, own);
	return r == 0 ? buf_put(&s->servers, "", 1) : r;
}

static int list_packages(const struct bootstrap_plan *p, struct buf *to)
{
	/* Arch's own archive is this, too. */
	int r = p->archive ? 0 : buf_puts(to, "base");
	const cJSON *v;

	cJSON_ArrayForEach(v, p->packages) if (r == 0) r =
		buf_printf(to, "%s%s", to->len ? " " : "", v->valuestring);
	return r == 0 ? buf_put(to, "", 1) : r;
}

/* Of a tree that the host's pacman has made, packages are there. */
static int set_up(struct boot *b, const struct bootstrap_plan *p, const char *servers,
		  const char *packages)
{
	return boot_run(
		b,
		&(struct boot_step){
			.base = b->base,
			.what = "setting up",
			.script = set_up_script,
			.words = (const char *const[]){servers, p->archive ? packages : "",
						       p->archive && p->refresh ? "yes" : "", NULL},
			.online = p->archive && *servers,
			.remedy =
				"packages and mirrors are those of --config; an archive and a mirror of about the same day go together",
			.out_fd = -1});
}

static int put_directories(struct boot *b, const struct bootstrap_plan *p)
{
	const cJSON *v;
	int r = -1;

	cJSON_ArrayForEach(v, p->directories)
	{
		const char *to = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(v, "to"));
		const struct boot_step s = {
			.base = b->base,
			.what = "putting a directory",
			.script = put_script,
			.words = (const char *const[]){to, NULL},
			.dir = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(v, "from")),
			.remedy = "what is at \"to\" of --config has to be a directory, or nothing",
			.out_fd = -1};

		if (r == -1)
			r = boot_run(b, &s);
	}
	return r;
}

static int finish(struct boot *b, const char *start)
{
	cleanup_fd int fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	const struct boot_step s = {.base = b->base,
				    .what = "packing",
				    .script = last_script,
				    .words = (const char *const[]){start, NULL},
				    .out_fd = fd};
	int r;

	if (fd < 0)
		return cli_fail_errno(ret_nerrno(), NULL,
				      "bootstrap: a temporary file in /var/tmp");
	r = boot_run(b, &s);
	return r == -1 ? boot_seal(b, fd) : r;
}

/* ---- the archive ---- */

#define MISSING 41

static const char fetch_script[] =
	"if command -v curl > /dev/null; then exec curl -fsSL --retry 2 -- \"$1\"; fi\n"
	"if command -v wget > /dev/null; then exec wget -nv -O - -- \"$1\"; fi\n"
	"exit 41\n";

/* What a mirror has, or a file of this machine as it is. */
struct fetched {
	int fd;           /* -1: a file */
	const char *path; /* of either, for programs of ours too */
	char own[48];
};

/* Its host is all that is reached, by programs of this machine that are confined as every command. */
static int fetch(struct boot *b, const char *from, const char *const *own, struct fetched *f)
{
	struct pacman_mirror m;
	struct diag diag = {0};
	int r;

	f->path = from;
	if (!bootstrap_is_url(from))
		return -1;
	r = pacman_check_mirror(from, own, &m, &diag);
	if (r == 0)
		r = net_allow(&b->net, m.host, &diag);
	if (r == 0 && (f->fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) < 0)
		r = diag_set(&diag, ret_nerrno(), "a temporary file in /var/tmp: %s",
			     err_text(errno));
	if (r < 0)
		return cli_fail_errno(r, &diag, "bootstrap");
	b->net.local |= m.local;
	(void)snprintf(f->own, sizeof(f->own), "/proc/%d/fd/%d", (int)getpid(), f->fd);
	f->path = f->own;
	if (!b->nenvs)
		boot_env(b);
	r = boot_run(b, &(struct boot_step){
				.base = "host",
				.what = "fetching",
				.script = fetch_script,
				.words = (const char *const[]){from, NULL},
				.online = true,
				.out_fd = f->fd,
				.remedy = "is the address right, and does this machine reach it?",
				.not_there = MISSING});
	/* what follows has hosts of its own */
	net_rules_release(&b->net);
	b->net = (struct net_rules){.local = b->args->local};
	return r != -2 ? r
		       : cli_fail(
				 CLI_FAILED,
				 "bootstrap: there is no curl and no wget on this host to fetch %s "
				 "with; install one, or fetch it and give --archive the file",
				 from);
}

static int unpack(struct boot *b, const struct bootstrap_plan *p, const char *path)
{
	cleanup_fd int fd = -1;
	struct diag diag = {0};
	struct stat was;
	int r = bootstrap_check(p, path, &diag, &was, &fd);

	if (r < 0)
		return cli_fail_errno(r, &diag, "bootstrap");
	r = boot_import(b, fd, b->base, 1);
	if (r == -1 && !bootstrap_same(path, &was))
		r = cli_fail(CLI_FAILED,
			     "bootstrap: the archive %s changed while it was read; nothing "
			     "came of it",
			     p->archive);
	return r;
}

/* An archive of a mirror whose maker nobody names has to be signed, and has its signature beside it. */
static int take_archive(struct boot *b, struct bootstrap_plan *p, const char *const *own)
{
	struct fetched archive = {.fd = -1}, signature = {.fd = -1};
	cleanup_free char *beside = NULL;
	int r = fetch(b, p->archive, own, &archive);

	if (r == -1 && !p->sha256 && !p->signature) {
		if (asprintf(&beside, "%s.sig", p->archive) < 0)
			beside = NULL;
		p->signature = beside;
		r = beside ? r : cli_fail_errno(-ENOMEM, NULL, "bootstrap");
	}
	if (r == -1 && p->signature) {
		r = fetch(b, p->signature, own, &signature);
		p->signature = signature.path;
	}
	if (r == -1)
		r = unpack(b, p, archive.path);
	p->signature = NULL;
	cleanup_fdp(&archive.fd);
	cleanup_fdp(&signature.fd);
	return r;
}

static int fill(struct boot *b, const struct bootstrap_plan *p, const char *const *own)
{
	struct serving s = {.b = b};
	cleanup_buf struct buf packages = {0};
	int r = mirrors(&s, p, own);

	if (r == 0)
		r = list_packages(p, &packages);
	if (r < 0) {
		r = cli_fail_errno(r, &s.diag, "bootstrap");
	} else {
		const char *servers = (const char *)s.servers.data;
		const char *what = (const char *)packages.data;

		if (p->archive)
			boot_env(b);
		r = p->archive ? -1 : bootstrap_by_pacman(b, p, servers, what);
		if (r == -1)
			r = set_up(b, p, servers, what);
	}
	buf_release(&s.servers);
	return r;
}

static int make(struct boot *b, struct bootstrap_plan *p, const char *const *own)
{
	char start[24];
	int r;

	/* Clocks of files are a little behind. */
	(void)snprintf(start, sizeof(start), "%lld", (long long)time(NULL) - 2);
	r = p->archive ? take_archive(b, p, own) : -1;
	if (r == -1)
		r = fill(b, p, own);
	if (r == -1)
		r = put_directories(b, p);
	return r == -1 ? finish(b, start) : r;
}

int bootstrap_arch(const struct boot_args *a, struct bootstrap_plan *plan)
{
	struct cli_config settings = {0};
	const char *const *own;
	struct diag diag = {0};
	struct boot b;
	int r = cli_config_load(&diag, &settings);

	own = (const char *const *)settings.pacman_mirrors;
	if (r == 0)
		r = bootstrap_plan_load(plan, a->config, own, &diag);
	if (r < 0) {
		r = cli_fail_errno(r, &diag, "bootstrap");
	} else {
		r = boot_begin(&b, a);
		if (r < 0)
			r = make(&b, plan, own);
		boot_end(&b);
	}
	bootstrap_plan_release(plan);
	cli_config_release(&settings);
	return r;
}
