#include "dlang/prelude.h"

namespace trapline::dlang {

std::string_view prelude() {
  return R"d(typedef struct psinfo {
  int pr_pid;
  int pr_ppid;
  int pr_pgid;
  uid_t pr_uid;
  uid_t pr_euid;
  gid_t pr_gid;
  gid_t pr_egid;
  char pr_fname[16];
} psinfo_t;
translator psinfo_t < int T > {
  pr_pid = pid;
  pr_ppid = ppid;
  pr_pgid = __pgid;
  pr_uid = uid;
  pr_euid = uid;
  pr_gid = gid;
  pr_egid = gid;
  pr_fname = execname;
};
inline psinfo_t *curpsinfo = xlate <psinfo_t *> (0);
typedef struct lwpsinfo {
  id_t pr_lwpid;
  int pr_pri;
  char pr_name[16];
} lwpsinfo_t;
translator lwpsinfo_t < int T > {
  pr_lwpid = tid;
  pr_pri = __priority;
  pr_name = execname;
};
inline lwpsinfo_t *curlwpsinfo = xlate <lwpsinfo_t *> (0);
typedef int processorid_t;
typedef id_t psetid_t;
typedef id_t chipid_t;
typedef id_t lgrp_id_t;
inline psetid_t pset = curcpu->cpu_pset;
inline chipid_t chip = curcpu->cpu_chip;
inline lgrp_id_t lgrp = curcpu->cpu_lgrp;
)d";
}

}  // namespace trapline::dlang
