/* A network with rules: rattan-net, started and used by the runner. argv[3] is rattan-net. What it makes of requests is
 * tested in tests/unit/net; here is what a command has of it, and what happens when it is not there. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "net/msg.h"
#include "runner/way_out.h"
#include "tests/unit/runner/rig.h"

static const char *try_path, *net_path;
static struct rig_out o;
static struct net_rules rules;
static unsigned port;
static pid_t server;

/* The host's own server: "hello" to whoever asks. */
static void serve(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), c;
	char junk[4096];

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, 50) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
		tap_fatal("no listening socket");
	port = ntohs(sa.sin_port);
	fflush(stdout);
	server = fork();
	while (server == 0 && (c = accept(fd, NULL, NULL)) >= 0) {
		(void)!recv(c, junk, sizeof(junk), 0);
		(void)!send(c, "HTTP/1.0 200 OK\r\n\r\nhello\n", 25, MSG_NOSIGNAL);
		(void)close(c);
	}
	if (server == 0)
		_exit(0);
	(void)close(fd);
}

static void spec(struct run_spec *s, const char *shell)
{
	rig_spec(s);
	s->net = net_path;
	s->net_rules = &rules;
	s->shell = shell;
}

static void run_shell(const char *shell)
{
	struct run_spec s;

	spec(&s, shell);
	rig_run(&s, &o);
}

#define ASK(host)                                                                                \
	"ask() { exec 3<>/dev/tcp/127.0.0.1/39080; printf \"GET http://$1/ HTTP/1.1\\r\\nHost: " \
	"$1\\r\\n\\r\\n\" >&3; cat <&3; exec 3>&-; }; ask " host

static const struct run_asked *find(const struct run_asked *v, size_t n, const char *host)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(v[i].host, host))
			return &v[i];
	return NULL;
}

static void test_served(void)
{
	struct run_asked *v = NULL;
	const struct run_asked *a;
	uint64_t total = 0;
	struct run_spec s;
	struct run *r;
	char text[1024];
	size_t n = 0;

	(void)snprintf(text, sizeof(text),
		       ASK("localhost:%u") "; ask localhost:%u; ask example.com", port, port);
	spec(&s, text);
	r = rig_start(&s);
	while (run_wait(r, 1000, &o.res) == 0)
		;
	eq_int(run_asked(r, &v, &n, &total), 0, "what was asked is known when it has ended");
	a = find(v, n, "localhost");
	ok(a && a->verdict == NET_OK && a->port == port && a->count == 2, "twice the same");
	a = find(v, n, "example.com");
	ok(a && a->verdict == NET_NO_RULE && a->port == 80 && a->count == 1, "once another");
	eq_int(total, 3, "three in all");
	free(v);
	rig_finish(r, &o);
	eq_int(o.res.code, 0, "the command is as any other");
	ok(strstr(o.out, "\nhello\n"), "it reaches what a rule allows");
	ok(strstr(o.out, "403 Forbidden"), "and not another");
	ok(strstr(o.res.enforced, "netns,network_rules"), "what held: %s", o.res.enforced);
	rig_shell("true", &o);
	ok(!strstr(o.res.enforced, "network_rules"), "which others have not");
}

static void test_alone(void)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "exec 3<>/dev/tcp/127.0.0.1/%u", port);
	run_shell(text);
	ok(o.res.code != 0 && strstr(o.err, "refused"), "102: the host's loopback is not its own");
	run_shell("exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3");
	ok(o.res.code != 0, "102: no route: %s", o.err);
	run_shell("while read -r k v; do case $k in Inter-*|face*|lo:*) ;; *) echo $k;; esac; done "
		  "< /proc/net/dev");
	eq_str(o.out, "", "no interface but loopback");
}

static int inside(const char *what, const char *arg)
{
	const char *const argv[] = {try_path, what, arg, NULL};
	struct run_spec s;

	spec(&s, NULL);
	s.argv = argv;
	rig_run(&s, &o);
	return o.res.state == RUN_EXITED ? o.res.code : 252;
}

static void test_calls(void)
{
	static const struct {
		const char *what, *arg;
		int inside;
	} rows[] = {
		{"socket", "2", 0},
		{"socket", "10", 0},
		{"socket", "1",
		 EACCES}, /* 104: a socket of the host's in the tree would be another way out */
		{"socket", "16",
		 EAFNOSUPPORT}, /* as where there is none: what would tell the audit goes on without */
		{"socket", "40", EAFNOSUPPORT},
		{"socket", "17", EAFNOSUPPORT},
		{"ptrace", "", EPERM},
		{"io_uring", "", ENOSYS},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		eq_int(inside(rows[i].what, rows[i].arg), rows[i].inside, "%s %s", rows[i].what,
		       rows[i].arg);
	run_shell("echo a | cat; ulimit -c");
	eq_int(o.res.code, 0, "pipes and the rest are as ever");
}

/* 110. */
static void test_vars(void)
{
	const char *const env[] = {"HTTP_PROXY=http://evil:1",  "NO_PROXY=*", "no_proxy=*",
				   "RATTAN_DENIED_DOMAINS=x.y", "MINE=kept",  NULL};
	const char *const print[] = {"env", NULL};
	struct net_rules closed = {0};
	struct diag d = {0};
	struct run_spec s;
	const char *at;

	spec(&s,
	     "echo $HTTP_PROXY $https_proxy $ALL_PROXY; echo \"<$NO_PROXY$no_proxy>\"; echo $MINE; echo "
	     "\"<$RATTAN_DENIED_DOMAINS>\" $RATTAN_ALLOWED_DOMAINS $ALLOW_LOCAL_BINDING "
	     "$CODEX_SANDBOX_NETWORK_DISABLED");
	s.env = env;
	rig_run(&s, &o);
	eq_str(o.out,
	       "http://127.0.0.1:39080 http://127.0.0.1:39080 socks5h://127.0.0.1:39081\n<>\nkept\n<> "
	       "localhost 1 1\n",
	       "the caller's are replaced, and empty lists clear");
	s.shell = NULL;
	s.argv = print;
	rig_run(&s, &o);
	at = strstr(o.out, "HTTP_PROXY=http://127");
	ok(at && !strstr(o.out, "evil"), "and are there no more");
	s.shell = "echo \"<$NO_PROXY>\"; echo \"<$RATTAN_DENIED_DOMAINS>\" $RATTAN_ALLOWED_DOMAINS "
		  "$ALLOW_LOCAL_BINDING";
	s.argv = NULL;
	if (net_allow(&closed, "a.b", &d) < 0 || net_deny(&closed, "c.d", &d) < 0)
		tap_fatal("%s", d.text);
	s.net_rules = &closed;
	rig_run(&s, &o);
	ok(strstr(o.out, "<localhost,127.0.0.1,"),
	   "loopback is its own where the host's is closed");
	ok(strstr(o.out, "<c.d> a.b 0\n"), "and the lists are there: %s", o.out);
	net_rules_release(&closed);
}

/* Lists of many long names are more than one variable holds, for which nothing would be executed at all. */
static void test_long_lists(void)
{
	struct net_rules many = {0};
	struct diag d = {0};
	struct run_spec s;
	char name[NET_HOST_MAX];

	for (int i = 0; i < 700; i++) {
		(void)snprintf(name, sizeof(name), "a%0*d.%0*d.%0*d.example.com", 60, i, 60, i, 60,
			       i);
		if (net_allow(&many, name, &d) < 0)
			tap_fatal("%s", d.text);
	}
	spec(&s, "echo \"${#RATTAN_ALLOWED_DOMAINS} ${RATTAN_ALLOWED_DOMAINS##*,} "
		 "$RATTAN_DENIED_DOMAINS\"; IFS=,; for d in $RATTAN_ALLOWED_DOMAINS; do case $d in "
		 "a*.example.com) ;; *) echo $d;; esac; done");
	s.net_rules = &many;
	rig_run(&s, &o);
	eq_int(o.res.code, 0, "the command starts: %s", o.res.error);
	ok(strtol(o.out, NULL, 10) > 90000 && strstr(o.out, " ... \n...\n"),
	   "with whole names, and dots for the rest: %.60s", o.out);
	net_rules_release(&many);
}

/* What a rattan-net says that is not itself any more. */
static void test_lies(void)
{
	static const char *const hosts[] = {"a.b",   "1.2.3.4",      "2606:4700::1",
					    "a\n.b", "\033[31mx.y",  "A.b",
					    "a b",   "b\xc3\xbc.de", "a.b."};
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct way_out w;
	int sv[2];

	way_out_init(&w, &lock);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		tap_fatal("socketpair");
	w.control = sv[0];
	w.state = WAY_OUT_SERVED;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		struct net_msg m = {.kind = NET_MSG_ASKED, .verdict = NET_NO_RULE, .port = 80};

		(void)snprintf(m.host, sizeof(m.host), "%s", hosts[i]);
		if (send(sv[1], &m, sizeof(m), 0) != (ssize_t)sizeof(m))
			tap_fatal("send");
	}
	way_out_read(&w);
	eq_int(w.nasked, 4, "names of hosts are kept, and of what is none only that it came");
	ok(w.nasked == 4 && !strcmp(w.asked[2].host, "2606:4700::1") && !*w.asked[3].host &&
		   w.asked[3].count == 6,
	   "as one without a name");
	(void)close(sv[1]);
	way_out_release(&w);
}

static void test_late(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct net_msg ready = {.kind = NET_MSG_READY};
	struct way_out w;
	int sv[2];

	for (int served = 0; served < 2; served++) {
		way_out_init(&w, &lock);
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
			tap_fatal("socketpair");
		w.control = sv[0];
		w.state = WAY_OUT_ASKED;
		w.serve_by = 5000;
		way_out_check(&w, 4999);
		eq_int(w.state, WAY_OUT_ASKED, "there is time");
		if (served && send(sv[1], &ready, sizeof(ready), 0) < 0)
			tap_fatal("send");
		way_out_read(&w);
		way_out_check(&w, 5000);
		eq_int(w.state, served ? WAY_OUT_SERVED : WAY_OUT_LOST, "and then %s",
		       served ? "it was used" : "no more");
		eq_int(w.error, served ? 0 : ETIMEDOUT, "with a reason");
		eq_int(w.serve_by, 0, "once");
		(void)close(sv[1]);
		way_out_release(&w);
	}
}

static void test_missing(void)
{
	static const char *const programs[] = {"./text", NULL};
	struct diag d = {0};
	struct run_spec s;
	struct run *r;
	FILE *f = fopen("text", "w");

	if (!f || fputs("no program\n", f) < 0 || fclose(f) != 0 || chmod("text", 0755) < 0)
		tap_fatal("text");
	spec(&s, "echo ran > ran");
	s.net = "/nowhere/rattan-net";
	ok(run_start(&s, &d, &r) < 0 && strstr(d.text, "rattan-net"), "not there: %s", d.text);
	s.net = programs[0];
	rig_run(&s, &o);
	ok(o.res.state == RUN_NOT_STARTED && o.res.code == 125 && !strcmp(o.res.step, "network"),
	   "107: no program: %s: %s", o.res.step, o.res.error);
	s.net = "/bin/true"; /* ends at once */
	rig_run(&s, &o);
	ok(o.res.state == RUN_NOT_STARTED && !strcmp(o.res.step, "network"),
	   "107: one that ends: %s: %s", o.res.step, o.res.error);
	s.net = "/bin/cat"; /* lives, and serves nobody: its standard input is at its end, so not for long */
	rig_run(&s, &o);
	ok(o.res.state == RUN_NOT_STARTED, "107: one that serves nobody: %s", o.res.error);
	s.net = try_path; /* waits */
	rig_run(&s, &o);
	ok(o.res.state == RUN_NOT_STARTED && !strcmp(o.res.step, "network") && !o.res.timed_out,
	   "107: one that never begins to: %s", o.res.error);
	ok(access("ran", F_OK) < 0, "and in none of these the command has run");
	d.text[0] = 0;
	spec(&s, "true");
	s.network = true;
	ok(run_start(&s, &d, &r) == -EINVAL, "the host's network has no rules: %s", d.text);
}

/* Children of ours that are rattan-net; it is told by its directory of descriptors, which is closed to us. */
static pid_t find_net(void)
{
	char path[64], text[512];
	pid_t found = -1;
	DIR *dir = opendir("/proc");

	for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
		FILE *f;
		int n, ppid = 0;
		const char *paren;

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s/stat", e->d_name);
		f = fopen(path, "r");
		n = f ? (int)fread(text, 1, sizeof(text) - 1, f) : 0;
		if (f)
			(void)fclose(f);
		text[n] = 0;
		paren = strrchr(text, ')');
		if (!paren || sscanf(paren, ") %*c %d", &ppid) != 1 || ppid != getpid())
			continue;
		if (strstr(text, "(rattan-net)"))
			found = (pid_t)strtol(e->d_name, NULL, 10);
	}
	if (dir)
		(void)closedir(dir);
	return found;
}

static void wait_for_file(const char *name)
{
	for (int i = 0; i < 500 && access(name, F_OK) < 0; i++)
		(void)usleep(20000);
}

static void test_ends(void)
{
	struct run_spec s;
	struct run *r;
	pid_t pid;

	spec(&s, "touch started; sleep 100; touch survived");
	r = rig_start(&s);
	wait_for_file("started");
	pid = find_net();
	ok(pid > 0, "it runs beside the command");
	if (pid <= 0)
		tap_fatal("no rattan-net");
	(void)kill(pid, SIGKILL);
	rig_finish(r, &o);
	ok(o.res.state != RUN_EXITED && strstr(o.res.error, "rattan-net"),
	   "killed, it takes the command along: %s", o.res.error);
	ok(access("survived", F_OK) < 0 && find_net() < 0, "and nothing is left");

	(void)unlink("started");
	r = rig_start(&s);
	wait_for_file("started");
	pid = find_net();
	(void)run_kill(r, 0);
	rig_finish(r, &o);
	ok(pid > 0 && kill(pid, 0) < 0 && errno == ESRCH, "the end of the command is its end");

	spec(&s, "true");
	for (int i = 0; i < 5; i++) {
		r = rig_start(&s);
		run_free(r);
	}
	ok(find_net() < 0, "also when it has hardly begun");
}

int main(int argc, char **argv)
{
	struct diag d = {0};

	rig_setup(argc, argv);
	if (argc < 4)
		tap_fatal("usage: %s RATTAN-STAGE3 TRY RATTAN-NET", argv[0]);
	try_path = argv[2];
	net_path = argv[3];
	rules.local = true;
	if (net_allow(&rules, "localhost", &d) < 0)
		tap_fatal("%s", d.text);
	serve();
	test_served();
	test_alone();
	test_calls();
	test_vars();
	test_long_lists();
	test_lies();
	test_late();
	test_missing();
	test_ends();
	(void)kill(server, SIGKILL);
	(void)waitpid(server, NULL, 0);
	net_rules_release(&rules);
	rig_end();
	return tap_done();
}
