/*
 * fs/core/hostbase.h - the base "host": a tree that needs no download.
 *
 * Its root shows the host's /usr, /bin, /sbin, /lib* and /etc copy-on-write (only what everyone may
 * read), an empty /home/user, /workspace, /tmp, /var/tmp, /run, and the parts of /var that compilers,
 * git, python and node need; /proc, /dev, /sys, /mnt, /srv, /data, /root as empty mount points; and
 * its own /etc/passwd, /etc/group, /etc/hostname, /etc/hosts, /etc/nsswitch.conf, /etc/resolv.conf in which uid
 * 1000 is "user" with home /home/user.
 */
#pragma once

#include "base/err.h"
#include "store/store.h"

#define HOSTBASE_REF   "base/host"
/* Who commands run as inside, and what they make is stored as (docs/architecture.md). */
#define HOSTBASE_AGENT 1000
/* /etc/hosts, where a tree has none: a name for the loopback, and the sandbox's own. */
#define HOSTBASE_HOSTS                  \
	"127.0.0.1\tlocalhost rattan\n" \
	"::1\tlocalhost ip6-localhost ip6-loopback\n"

/* The sealed layer of the base, made on first use and refreshed when its shape (not its files)
 * differs from what this build would make. Safe to call from several processes at once. */
int hostbase_get(struct store *s, struct diag *diag, store_layer *ret) MUST_USE;

/* A new sealed layer on @parent in which the directory @mount ("/workspace") shows the host directory
 * @root copy-on-write; missing directories on the way are made. */
int hostbase_overlay(struct store *s, store_layer parent, const char *root, const char *mount,
		     struct diag *diag, store_layer *ret) MUST_USE;
/* The host directory that @mount shows at @layer; -ENOENT when it shows none. */
int hostbase_overlay_at(struct store *s, store_layer layer, const char *mount,
			struct buf *ret_root) MUST_USE;
