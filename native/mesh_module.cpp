#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "mesh.h"

namespace nb = nanobind;

namespace lioncub {

namespace {

using Parts = std::vector<std::tuple<int, int64_t, int64_t>>;  // peer, address, bytes

// Messages on their way. ``owners`` keep their memory.
struct Post {
    nb::object owners;
    std::shared_ptr<Mesh> mesh;
    std::shared_ptr<Ticket> ticket;

    Post(std::shared_ptr<Mesh> mesh, const Parts &receives, const Parts &sends, uint32_t tag, nb::object owners)
        : owners(std::move(owners)), mesh(std::move(mesh)) {
        ticket = this->mesh->post(messages(receives, tag), messages(sends, tag));
    }
    ~Post() {
        if (ticket->complete()) return;
        nb::gil_scoped_release unlocked;
        mesh->forget(ticket);
    }
    Post(const Post &) = delete;
    Post &operator=(const Post &) = delete;

    static std::vector<Message> messages(const Parts &parts, uint32_t tag) {
        std::vector<Message> found;
        for (const auto &[peer, address, size] : parts) {
            found.push_back({peer, tag, reinterpret_cast<uint8_t *>(address), uint64_t(size)});
        }
        return found;
    }
};

}  // namespace

}  // namespace lioncub

NB_MODULE(_sockets, m) {
    using namespace lioncub;
    nb::set_leak_warnings(false);  // an optimizer may well live until the interpreter ends, and its connections with it
    nb::class_<Mesh>(m, "Mesh")
        .def(nb::init<std::vector<int>, double>())
        .def("close", &Mesh::close, nb::call_guard<nb::gil_scoped_release>())
        .def("close_in_child", &Mesh::close_in_child);
    nb::class_<Post>(m, "Post")
        .def(nb::init<std::shared_ptr<Mesh>, const Parts &, const Parts &, uint32_t, nb::object>())
        .def("wait", [](const Post &post, double seconds) { return post.ticket->wait(seconds); },
             nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("failed_peer", [](const Post &post) { return post.ticket->failed_peer(); })
        .def_prop_ro("problem", [](const Post &post) { return post.ticket->problem(); });
}
