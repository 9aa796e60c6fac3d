// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <string>

#include "scratch_folder.hpp"

namespace ostrakon::testing {

/// A folder that all ranks of the world share.
class SharedFolder {
 public:
  SharedFolder() : comm_(comm::Communicator::duplicate(MPI_COMM_WORLD)) {
    if (comm_.rank() == 0) owned_ = std::make_unique<ScratchFolder>();
    path_ = comm_.broadcast(owned_ ? owned_->file("") : "", 0);
  }
  ~SharedFolder() { comm_.barrier(); }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + name; }

 private:
  comm::Communicator comm_;
  std::unique_ptr<ScratchFolder> owned_;
  std::string path_;
};

}  // namespace ostrakon::testing
