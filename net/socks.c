#include "net/socks.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

ssize_t net_socks_hello(const unsigned char *p, size_t n, bool *ret_open)
{
	if (n >= 1 && p[0] != 5)
		return -EINVAL;
	if (n < 2 || n < 2u + p[1])
		return 0;
	*ret_open = memchr(p + 2, 0, p[1]) != NULL;
	return 2 + p[1];
}

static int read_address(const unsigned char *p, int family, struct net_host *ret)
{
	char text[INET6_ADDRSTRLEN];

	if (!inet_ntop(family, p, text, sizeof(text)))
		return -EINVAL;
	return net_host_parse(text, strlen(text), ret);
}

ssize_t net_socks_request(const unsigned char *p, size_t n, struct net_host *ret_host,
			  unsigned *ret_port, enum net_socks_reply *ret_reply)
{
	size_t at = 4, len;
	int e;

	*ret_host = (struct net_host){0};
	*ret_port = 0;
	*ret_reply = NET_SOCKS_FAILED;
	if ((n >= 1 && p[0] != 5) || (n >= 3 && p[2] != 0))
		return -EINVAL;
	if (n >= 2 && p[1] != 1) {
		*ret_reply = NET_SOCKS_NO_COMMAND;
		return -EINVAL;
	}
	if (n < 5)
		return 0;
	switch (p[3]) {
	case 1:
		len = 4;
		break;
	case 3:
		at = 5;
		len = p[4];
		break;
	case 4:
		len = 16;
		break;
	default:
		*ret_reply = NET_SOCKS_NO_ADDRESS;
		return -EINVAL;
	}
	if (n < at + len + 2)
		return 0;
	if (p[3] == 3)
		e = net_host_parse((const char *)p + at, len, ret_host);
	else
		e = read_address(p + at, p[3] == 1 ? AF_INET : AF_INET6, ret_host);
	*ret_port = (unsigned)p[at + len] << 8 | p[at + len + 1];
	if (e < 0 || *ret_port == 0)
		return -EINVAL;
	return (ssize_t)(at + len + 2);
}
