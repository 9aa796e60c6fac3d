// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/export_pass.hpp>

#include <ostrakon/plan/passes/redistribute.hpp>

namespace ostrakon::plan {

void ExportPass::on(const Task& task) {
  if (task.work != Work::show || builder_.state(task.unit).masters < 0) return;
  const int u = task.unit;
  const Layout whole{{}, Space::device, builder_.plan().layouts.masters.element_bytes};
  Redistribution moving;
  moving.on_device = "masters";
  moving.gathered = "gathered masters";
  std::vector<int> made;
  const int masters = redistribute(builder_, u, builder_.state(u).masters, whole, moving, made);
  Action& visit = builder_.emit(Kind::export_parameters, Stream::compute, u);
  builder_.use(visit, Role::parameters, masters, Access::read);
  builder_.release(u, made);
}

}  // namespace ostrakon::plan
