/* stage3/listen.h - the way out of a network namespace that has none: sockets that somebody outside serves. */
#pragma once

/* Binds the ports of STAGE3_PLAN_LISTEN, hands the sockets out, and waits until they are served. Negative errno. */
int listen_offer(void);
