#include "dlang/prelude.h"

namespace trapline::dlang {

std::string_view prelude() {
  return R"d(typedef struct psinfo {
  int pr_pid;
  int pr_ppid;
  uid_t pr_uid;
  uid_t pr_euid;
  gid_t pr_gid;
  gid_t pr_egid;
  char pr_fname[16];
} psinfo_t;
translator psinfo_t < int T > {
  pr_pid = pid;
  pr_ppid = ppid;
  pr_uid = uid;
  pr_euid = uid;
  pr_gid = gid;
  pr_egid = gid;
  pr_fname = execname;
};
inline psinfo_t *curpsinfo = xlate <psinfo_t *> (0);
typedef struct lwpsinfo {
  id_t pr_lwpid;
  char pr_name[16];
} lwpsinfo_t;
translator lwpsinfo_t < int T > {
  pr_lwpid = tid;
  pr_name = execname;
};
inline lwpsinfo_t *curlwpsinfo = xlate <lwpsinfo_t *> (0);
)d";
}

}  // namespace trapline::dlang
