/* What may be asked of pacman. */
#include "client/pacman.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* ---- arguments of a query ---- */

struct option {
	char letter; /* 0: only the long one */
	const char *name;
	bool value; /* takes one: "--name=VALUE", or the next word */
	bool reads; /* of -S: with it nothing is installed */
};

/* With every operation. */
static const struct option common[] = {
	{'v', "verbose", false, false}, {'q', "quiet", false, false},
	{'h', "help", false, false},    {0, "color", true, false},
	{0, "debug", false, false},     {0, "noconfirm", false, false},
};

static const struct option query[] = {
	{'c', "changelog", false, false},  {'d', "deps", false, false},
	{'e', "explicit", false, false},   {'g', "groups", false, false},
	{'i', "info", false, false},       {'k', "check", false, false},
	{'l', "list", false, false},       {'m', "foreign", false, false},
	{'n', "native", false, false},     {'o', "owns", false, false},
	{'p', "file", false, false},       {'s', "search", false, false},
	{'t', "unrequired", false, false}, {'u', "upgrades", false, false},
};
static const struct option sync_reads[] = {
	{'g', "groups", false, true}, {'i', "info", false, true},
	{'l', "list", false, true},   {'p', "print", false, true},
	{'s', "search", false, true}, {0, "print-format", true, false},
};
static const struct option files[] = {
	{'l', "list", false, false},
	{'x', "regex", false, false},
	{0, "machinereadable", false, false},
};

static const struct operation {
	char letter;
	const char *name;
	const struct option *v;
	size_t n;
	bool must_read; /* without one of those that only read it changes the system */
} operations[] = {
	{'Q', "query", query, ARRAY_SIZE(query), false},
	{'S', "sync", sync_reads, ARRAY_SIZE(sync_reads), true},
	{'F', "files", files, ARRAY_SIZE(files), false},
	{'T', "deptest", NULL, 0, false},
	{'V', "version", NULL, 0, false},
};

static const char *const elsewhere[] = {
	"root",    "dbpath", "cachedir", "config",      "gpgdir",           "hookdir",   "logfile",
	"sysroot", "arch",   "ignore",   "ignoregroup", "assume-installed", "overwrite", NULL};

struct parse {
	const struct operation *op;
	struct diag *diag;
	bool reads, help, any;
};

static int refuse(struct parse *p, const char *word)
{
	static const char changes[] = "RSUD";
	const char *name = word + strspn(word, "-");

	for (size_t i = 0; elsewhere[i]; i++)
		if (!strncmp(name, elsewhere[i], strlen(elsewhere[i])) && word[1] == '-')
			return diag_set(
				p->diag, -EINVAL,
				"'%.60s' is refused: where pacman looks, and what it trusts, is "
				"the environment's",
				word);
	if (word[1] != '-' && word[1] && strchr(changes, word[1]))
		return diag_set(
			p->diag, -EINVAL,
			"'%.60s' is refused: only queries are run (-Q, -Si, -Ss, -Sl, -Sg, -Sp, -F, -T, "
			"-V); pacman_install installs and upgrades",
			word);
	return diag_set(
		p->diag, -EINVAL,
		"'%.60s' is refused: it is on no list of options that only read (-Q, -Si, -Ss, -Sl, "
		"-Sg, -Sp, -F, -T, -V and what goes with them, long options whole)",
		word);
}

static const struct option *find(const struct option *v, size_t n, char letter, const char *name,
				 size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (letter ? v[i].letter == letter
			   : strlen(v[i].name) == len && !strncmp(v[i].name, name, len))
			return &v[i];
	return NULL;
}

static const struct option *known(const struct parse *p, char letter, const char *name, size_t len)
{
	const struct option *o = find(common, ARRAY_SIZE(common), letter, name, len);

	return o || !p->op ? o : find(p->op->v, p->op->n, letter, name, len);
}

/* The first pass: which operation. A cluster may have its letter anywhere. */
static int take_operation(struct parse *p, const char *word)
{
	bool is_long = word[1] == '-';

	for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
		const struct operation *o = &operations[i];

		if (is_long ? strcmp(word + 2, o->name) != 0 : !strchr(word + 1, o->letter))
			continue;
		if (p->op && p->op != o)
			return diag_set(p->diag, -EINVAL,
					"only one operation at a time, and here are -%c and -%c",
					p->op->letter, o->letter);
		p->op = o;
	}
	return 0;
}

static int take_long(struct parse *p, const char *word, bool *ret_value)
{
	size_t len = strcspn(word + 2, "=");
	const struct option *o;

	if (p->op && !word[2 + len] && !strcmp(word + 2, p->op->name))
		return 0;
	o = known(p, 0, word + 2, len);
	if (!o || (!o->value && word[2 + len]))
		return refuse(p, word);
	*ret_value = o->value && !word[2 + len];
	p->reads |= o->reads;
	p->help |= o->letter == 'h';
	return 0;
}

static int take_letters(struct parse *p, const char *word)
{
	for (const char *c = word + 1; *c; c++) {
		const struct option *o;

		if (p->op && *c == p->op->letter)
			continue;
		o = known(p, *c, NULL, 0);
		if (!o)
			return refuse(p, word);
		p->reads |= o->reads;
		p->help |= o->letter == 'h';
	}
	return 0;
}

static bool is_option(const char *word)
{
	return word[0] == '-' && word[1];
}

static int options(struct parse *p, const char *const *args, size_t n, bool first)
{
	bool value = false;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		if (value) {
			value = false;
			continue;
		}
		if (!strcmp(args[i], "--"))
			break; /* what follows are names */
		if (!strcmp(args[i], "-"))
			return diag_set(p->diag, -EINVAL,
					"'-' is refused: there is no standard input");
		if (!is_option(args[i]))
			continue;
		if (first)
			r = take_operation(p, args[i]);
		else if (args[i][1] == '-')
			r = take_long(p, args[i], &value);
		else
			r = take_letters(p, args[i]);
	}
	return r == 0 && value ? diag_set(p->diag, -EINVAL, "the last option needs a value") : r;
}

int pacman_check_query(const char *const *args, size_t n, struct diag *diag)
{
	struct parse p = {.diag = diag};
	int r;

	if (!n || n > PACMAN_ARGS_MAX)
		return diag_set(diag, -EINVAL, "give 1 to %d arguments, as in [\"-Q\", \"bash\"]",
				PACMAN_ARGS_MAX);
	r = options(&p, args, n, true);
	if (r == 0)
		r = options(&p, args, n, false);
	if (r < 0)
		return r;
	if (!p.op && !p.help)
		return diag_set(
			diag, -EINVAL,
			"no operation: -Q asks what is installed, -Ss and -Si what there is, "
			"-F who has a file");
	if (p.op && p.op->must_read && !p.reads && !p.help)
		return diag_set(
			diag, -EINVAL,
			"-S without -s, -i, -l, -g or -p installs: pacman_install does that");
	return 0;
}

/* ---- packages ---- */

static bool name_char(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("@._+-", c));
}

static size_t name_len(const char *s)
{
	size_t n = 0;

	if (*s == '-' || *s == '.')
		return 0;
	while (name_char(s[n]))
		n++;
	return n;
}

int pacman_check_package(const char *name, struct diag *diag)
{
	const char *p = name;
	size_t n = name_len(p);

	if (n && p[n] == '/') {
		p += n + 1;
		n = name_len(p);
	}
	p += n;
	if (n && *p) { /* a version */
		size_t op = strspn(p, "<>=");

		n = op && op <= 2 ? op : 0;
		for (p += n; n && (name_char(*p) || *p == ':' || *p == '~'); p++)
			;
		n = n && !*p && !strchr("<>=", p[-1]);
	}
	if (!n || strlen(name) > 255)
		return diag_set(
			diag, -EINVAL,
			"'%.80s' is no name of a package: letters, digits and @ . _ + -, the first "
			"no dash or dot, as in \"tree\" or \"extra/git\"",
			name);
	return 0;
}

/* ---- mirrors ---- */

/* They and what is below them. */
static const char *const domains[] = {"archlinux.org", "kernel.org",   "pkgbuild.com",
				      "rackspace.com", "c3sl.ufpr.br", "surfnet.nl",
				      "heanet.ie",     "leaseweb.com", "leaseweb.net"};

static bool below(const char *host, const char *domain)
{
	size_t h = strlen(host), d = strlen(domain);

	return h >= d && !strcmp(host + h - d, domain) && (h == d || host[h - d - 1] == '.');
}

/* mirror.archlinux.de: a country's, and something before it. */
static bool of_a_country(const char *host)
{
	size_t n = strlen(host);
	const char *tail = n > 13 ? host + n - 13 : NULL; /* ".archlinux.xx" */

	return tail && !strncmp(tail, ".archlinux.", 11) && islower((unsigned char)tail[11]) &&
	       islower((unsigned char)tail[12]);
}

static bool host_known(const char *host)
{
	for (size_t i = 0; i < ARRAY_SIZE(domains); i++)
		if (below(host, domains[i]))
			return true;
	return of_a_country(host);
}

/* A name with a dot in it, of which no part is empty or begins or ends with a dash; not four numbers. */
static bool host_ok(const char *host)
{
	struct in_addr a;
	bool dot = false;

	if (inet_aton(host, &a))
		return false;
	for (const char *p = host; *p; p++) {
		bool edge = p == host || p[-1] == '.' || !p[1] || p[1] == '.';

		if (*p == '.') {
			if (edge)
				return false;
			dot = true;
		} else if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) &&
			   (*p != '-' || edge)) {
			return false;
		}
	}
	return dot;
}

static bool port_ok(const char *p)
{
	size_t n = strlen(p);

	return n && n <= 5 && strspn(p, "0123456789") == n && strtoul(p, NULL, 10) - 1 < 65535;
}

static bool path_ok(const char *p)
{
	for (const char *q = p; *q; q++)
		if (!isalnum((unsigned char)*q) && !strchr("/._~+-$", *q))
			return false;
	if (strstr(p, "/../") || strstr(p, "/./") || strstr(p, "//"))
		return false;
	for (const char *q = p; (q = strchr(q, '$')); q++)
		if (strncmp(q, "$repo/", 6) != 0 && strcmp(q, "$arch") != 0)
			return false;
	return true;
}

static bool listed(const char *const *own, const char *url, size_t origin)
{
	for (; own && *own; own++) {
		size_t n = strlen(*own);

		if (n && (*own)[n - 1] == '/')
			n--;
		if (n == origin && !strncmp(*own, url, n))
			return true;
	}
	return false;
}

static int bad(struct diag *diag, const char *url, const char *why)
{
	return diag_set(diag, -EINVAL, "the mirror '%s' is refused: %s", url, why);
}

int pacman_check_mirror(const char *url, const char *const *own, struct pacman_mirror *ret,
			struct diag *diag)
{
	size_t scheme = strncmp(url, "https://", 8) ? (strncmp(url, "http://", 7) ? 0 : 7) : 8;
	size_t origin = scheme + strcspn(url + scheme, "/"), len = strlen(url);
	const char *host = url + scheme, *path = url + origin, *colon;
	bool mine = scheme && listed(own, url, origin);

	*ret = (struct pacman_mirror){0};
	if (!scheme || len > 900)
		return bad(diag, url, "it is no https:// address");
	if (memchr(host, '@', origin - scheme) || strchr(url, '@'))
		return bad(diag, url, "it has a name or password in it");
	colon = memchr(host, ':', origin - scheme);
	if ((size_t)(path - host) >= sizeof(ret->host) || (colon && (size_t)(path - colon) > 6))
		return bad(diag, url, "its host is none");
	memcpy(ret->host, host, (size_t)((colon ? colon : path) - host));
	if (colon) {
		char port[8] = "";

		memcpy(port, colon + 1, (size_t)(path - colon - 1));
		if (!port_ok(port))
			return bad(diag, url, "its port is none");
	}
	ret->local = mine && (!strcmp(ret->host, "localhost") || !strncmp(ret->host, "127.", 4));
	if (!ret->local && !host_ok(ret->host))
		return bad(diag, url, "its host is no name of one, in small letters");
	if (scheme != 8 && !ret->local)
		return bad(diag, url, "only https:// is safe on the way");
	if (!mine && !host_known(ret->host))
		return bad(diag, url,
			   "its host is none of Arch's mirrors that are known; the settings' "
			   "pacman_mirrors can add one");
	if (!path_ok(path) || (strlen(path) >= 3 && !strcmp(path + strlen(path) - 3, "/..")))
		return bad(diag, url, "its path has something in it that no mirror has");
	while (len > origin && url[len - 1] == '/')
		len--;
	(void)snprintf(ret->server, sizeof(ret->server), "%.*s%s", (int)len, url,
		       strchr(path, '$') ? "" : "/$repo/os/$arch");
	if (strchr(path, '$') && !strstr(path, "$repo/"))
		return bad(diag, url, "it names $arch but not $repo");
	return 0;
}

/* One line; NULL when it names no server. */
static char *server_of(const char *p, size_t len)
{
	while (len && isspace((unsigned char)*p)) {
		p++;
		len--;
	}
	if (len < 7 || strncmp(p, "Server", 6) != 0)
		return NULL;
	for (p += 6, len -= 6; len && isspace((unsigned char)*p); p++)
		len--;
	if (!len || *p != '=')
		return NULL;
	for (p++, len--; len && isspace((unsigned char)*p); p++)
		len--;
	while (len && isspace((unsigned char)p[len - 1]))
		len--;
	return strndup(p, len);
}

int pacman_mirrors(const char *list, size_t len, const char *const *own,
		   int (*fn)(void *arg, const struct pacman_mirror *m), void *arg)
{
	const char *end = list + len;
	int r = 0;

	while (r == 0 && list < end) {
		const char *nl = memchr(list, '\n', (size_t)(end - list));
		size_t n = (size_t)((nl ? nl : end) - list);
		cleanup_free char *server = server_of(list, n);
		struct pacman_mirror m;
		struct diag unused = {0};

		if (server && pacman_check_mirror(server, own, &m, &unused) == 0)
			r = fn(arg, &m);
		list += n + 1;
	}
	return r;
}
