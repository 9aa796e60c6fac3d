// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/mesh/run_collectively_by_name.hpp>

#include <exception>
#include <new>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <string>

namespace ostrakon::mesh {

void run_collectively_by_name(comm::Communicator& world, const std::function<void()>& work) {
  const auto by_name = [&](const std::string& what) {
    return Error(text("rank ", world.rank(), " on ", host_name(), ": ", what));
  };
  world.run_collectively([&] {
    try {
      work();
    } catch (const DamagedError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw by_name("out of memory");
    } catch (const std::exception& error) {
      throw by_name(error.what());
    }
  });
}

}  // namespace ostrakon::mesh
