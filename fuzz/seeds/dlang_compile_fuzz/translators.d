Btranslator lwpsinfo_t < int v > { pr_flag = v; pr_lwpid = 1 + v; };
inline int limit = 10 * 4; #pragma D attributes Stable/Stable/Common limit
BEGIN { trace(xlate<lwpsinfo_t>(3).pr_lwpid + limit); trace(curpsinfo->pr_psargs); }
