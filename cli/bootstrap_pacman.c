/*
 * rattan bootstrap arch by the host's pacman: it resolves, fetches and checks the packages, and runs nothing of them; they are unpacked, and
 * pacman of the new tree installs them once more, with all that scripts and hooks may count on, as root of nothing but that tree.
 */
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/bootstrap.h"
#include "cli/bootstrap_plan.h"

/* What only the making has goes with /tmp. */
#define MADE "/tmp/rattan"

/* $1 the servers of every repository, $2 packages, $3 "yes": a keyring comes on standard input, and each key in it may sign. Otherwise
 * pacman's of this host, or one that is made of the host's package archlinux-keyring, which knows who is trusted how far. The
 * configuration is none of the host's: what that ignores, or runs for each file, is no part of the base. Nothing is signed by halves
 * ("Required"), as Arch itself has it. */
static const char fetch_script[] =
	"set -eu; umask 022; export LC_ALL=C.UTF-8; exec 3>&1 >&2\n" BOOT_DOING
	"doing the keyring\n"
	"r=/workspace/root; m=$r" MADE "; k=$m/keys\n"
	"mkdir -p $r/var/lib/pacman $r/var/cache/pacman/pkg $m; mkdir -m 700 $k; chmod 1777 $r/tmp\n"
	"unpack=tar; ! command -v bsdtar > /dev/null || unpack=bsdtar\n"
	"if [ -n \"$3\" ]; then\n"
	"  gpg --homedir $k --batch --quiet --import\n"
	"  gpg --homedir $k --batch --with-colons --list-keys > $m/listed\n"
	"  sed -n '/^pub:/,/^fpr:/s/^fpr:*\\([0-9A-F]*\\):.*/\\1:6:/p' $m/listed | gpg --homedir $k --batch --quiet --import-ownertrust\n"
	"elif [ -r /etc/pacman.d/gnupg/trustdb.gpg ]; then\n"
	"  for f in pubring.gpg pubring.kbx trustdb.gpg; do [ ! -e /etc/pacman.d/gnupg/$f ] || cp /etc/pacman.d/gnupg/$f $k/; done\n"
	"elif [ -e /usr/share/pacman/keyrings/archlinux.gpg ] || [ -e /usr/share/keyrings/archlinux.gpg ]; then\n"
	"  pacman-key --gpgdir $k --init; pacman-key --gpgdir $k --populate archlinux\n"
	"else\n"
	"  echo 'this host has no keyring to check the packages with: install the package archlinux-keyring, or name one with --keyring FILE'; exit 1\n"
	"fi\n"
	"{ printf '[options]\\nArchitecture = auto\\nSigLevel = Required DatabaseOptional\\n'\n"
	"  ! pacman --version | grep -q 'v[789]\\.' || echo DisableSandbox\n"
	"  printf '[core]\\n%s[extra]\\n%s' \"$1\" \"$1\"; } > $m/conf\n"
	"doing 'fetching and checking packages (pacman -Syw)'\n"
	"pacman --config $m/conf --root $r --dbpath $r/var/lib/pacman --cachedir $r/var/cache/pacman/pkg --gpgdir $k --hookdir $m/none --logfile $m/log "
	"--noconfirm --disable-download-timeout -Syw -- $2\n"
	"doing unpacking\n"
	"for f in $r/var/cache/pacman/pkg/*; do\n"
	"  case $f in *.sig) continue ;; esac\n"
	"  $unpack --numeric-owner -xpf \"$f\" -C $r\n"
	"  rm -f $r/.PKGINFO $r/.MTREE $r/.BUILDINFO $r/.INSTALL $r/.CHANGELOG\n"
	"done\n"
	"rm -f $k/S.* $m/log $m/listed\n"
	"doing packing\n"
	"exec tar -C $r --numeric-owner --xattrs --xattrs-include=security.capability -cf - . >&3\n";

/* $1 packages. What lies there came with the same packages: it is what they overwrite. */
static const char install_script[] =
	"set -eu; umask 022; export LC_ALL=C.UTF-8; exec >&2\n" BOOT_DOING
	"[ -x /usr/bin/pacman ] && command -v bash > /dev/null || { echo 'the packages have no pacman, or no bash'; exit 1; }\n"
	"doing 'pacman -S in the new tree'\n"
	"pacman --config " MADE "/conf --gpgdir " MADE
	"/keys --noconfirm --overwrite '*' -S -- $1\n"
	"rm -rf " MADE "\n";

int bootstrap_by_pacman(struct boot *b, const struct bootstrap_plan *p, const char *servers,
			const char *packages)
{
	cleanup_fd int fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return cli_fail_errno(ret_nerrno(), NULL,
				      "bootstrap: a temporary file in /var/tmp");
	boot_env(b);
	r = boot_run(
		b,
		&(struct boot_step){
			.base = "host",
			.what = "fetching and unpacking",
			.script = fetch_script,
			.words = (const char *const[]){servers, packages, p->keyring ? "yes" : "",
						       NULL},
			.online = true,
			.file = p->keyring,
			.remedy =
				"packages and mirrors are those of --config; a key that is unknown comes "
				"with a newer archlinux-keyring of this host, or with --keyring FILE",
			.out_fd = fd});
	if (r == -1)
		r = boot_import(b, fd, b->base, 0);
	if (r != -1)
		return r;
	boot_env(b);
	return boot_run(b, &(struct boot_step){.base = b->base,
					       .what = "installing",
					       .script = install_script,
					       .words = (const char *const[]){packages, NULL},
					       .remedy = BOOT_REMEDY_SCRIPT,
					       .out_fd = -1});
}
