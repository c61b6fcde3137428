"""Damages a real shared library in its file only: what the loader needs to load and run it (program headers, .dynamic,
.dynsym, code and data) stays, everything else that a tracer reads is made to lie."""

import lzma
import random
import struct

HUGE = 1 << 62
EHDR, SHDR, SYM = 64, struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
NAME, TYPE, FLAGS, ADDRESS, OFFSET, SIZE, LINK, INFO, ALIGN, ENTRY = range(10)
NOBITS, COMPRESSED, FUNC_GLOBAL = 8, 0x800, 0x12


class Library:
    """A copy of an ELF file, with its section headers as lists."""

    def __init__(self, data):
        self.data = bytearray(data)
        self.table = struct.unpack_from("<Q", data, 40)[0]
        self.count, self.names = struct.unpack_from("<HH", data, 60)
        self.sections = [list(SHDR.unpack_from(data, self.table + SHDR.size * i)) for i in range(self.count)]
        start = self.sections[self.names][OFFSET]
        self.index = {}
        for i, section in enumerate(self.sections):
            at = start + section[NAME]
            self.index[bytes(data[at:data.index(b"\0", at)]).decode()] = i

    def __getitem__(self, name):
        return self.sections[self.index[name]]

    def loaded_end(self):
        """Where in the file the last loaded byte ends."""
        at, count = struct.unpack_from("<Q", self.data, 32)[0], struct.unpack_from("<H", self.data, 56)[0]
        ends = [0]
        for i in range(count):
            kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", self.data, at + 56 * i)
            ends += [offset + size] if kind == 1 else []
        return max(ends)

    def bytes(self):
        for i, section in enumerate(self.sections):
            SHDR.pack_into(self.data, self.table + SHDR.size * i, *section)
        return bytes(self.data)

    def append(self, data):
        offset = len(self.data)
        self.data += data
        return offset

    def symbols(self):
        section = self[".symtab"]
        return [list(SYM.unpack_from(self.data, section[OFFSET] + SYM.size * i))
                for i in range(section[SIZE] // SYM.size)]

    def set_symbols(self, symbols):
        section = self[".symtab"]
        data = b"".join(SYM.pack(*symbol) for symbol in symbols)
        section[OFFSET], section[SIZE] = self.append(data), len(data)

    def set_strings(self, data):
        section = self[".strtab"]
        section[OFFSET], section[SIZE] = self.append(data), len(data)


def functions(symbols):
    return [symbol for symbol in symbols if symbol[1] & 15 == 2]


def header_cases(good):
    """(name, file) where a section header lies."""
    for name in (".symtab", ".strtab", ".shstrtab", ".text", ".eh_frame", ".eh_frame_hdr", ".dynsym", ".plt.got",
                 ".note.gnu.build-id", ".rela.dyn"):
        for field, value, what in ((OFFSET, HUGE, "far"), (SIZE, HUGE, "huge"), (SIZE, (1 << 64) - 1, "wrapping"),
                                   (SIZE, 1, "one_byte"), (OFFSET, len(good) - 3, "over_the_end"),
                                   (ENTRY, 0, "no_entry_size"), (ENTRY, 1, "tiny_entries"), (LINK, 0xffffffff, "bad_link"),
                                   (TYPE, NOBITS, "nobits"), (FLAGS, COMPRESSED, "compressed"), (ADDRESS, HUGE, "nowhere"),
                                   (ALIGN, 3, "odd")):
            library = Library(good)
            library[name][field] = value
            yield f"{name.strip('.')}_{what}", library.bytes()
    library = Library(good)
    for section in library.sections:
        section[OFFSET], section[SIZE] = 0, len(good)
    yield "sections_all_of_the_file", library.bytes()
    library = Library(good)
    for name in (".symtab", ".strtab", ".shstrtab"):
        library[name][OFFSET:SIZE + 1] = library[".text"][OFFSET:SIZE + 1]
    yield "tables_over_text", library.bytes()
    library = Library(good)
    library[".symtab"][LINK] = library.index[".symtab"]
    yield "symtab_its_own_strings", library.bytes()
    library = Library(good)
    library[".text"][ADDRESS:SIZE + 1] = library[".rodata"][ADDRESS:SIZE + 1]
    yield "text_over_rodata", library.bytes()
    generator = random.Random(7)
    for i in range(20):
        library = Library(good)
        for section in library.sections[1:]:
            section[generator.randrange(10)] = generator.choice([0, 1, generator.getrandbits(12), generator.getrandbits(32)])
        yield f"headers_random_{i}", library.bytes()


def symbol_cases(good):
    """(name, file) where the symbol table or its strings lie."""

    def changed(name, change):
        library = Library(good)
        symbols = library.symbols()
        change(symbols)
        library.set_symbols(symbols)
        return f"symbols_{name}", library.bytes()

    def each(change):
        def run(symbols):
            for number, symbol in enumerate(functions(symbols)):
                change(number, symbol)
        return run

    def put(field, value):
        return each(lambda _, symbol: symbol.__setitem__(field, value))

    library = Library(good)
    rodata, text, data = library[".rodata"][ADDRESS], library[".text"], library[".data"][ADDRESS]
    yield changed("huge", put(5, HUGE))
    yield changed("wrapping", put(5, (1 << 64) - 1))
    yield changed("without_size", put(5, 0))
    yield changed("of_one_byte", put(5, 1))
    yield changed("far_away", put(4, HUGE))
    yield changed("at_the_end", put(4, text[ADDRESS] + text[SIZE] - 1))
    yield changed("in_rodata", put(4, rodata))
    yield changed("in_data", put(4, data))
    yield changed("at_zero", put(4, 0))
    yield changed("all_at_one_address", put(4, text[ADDRESS] + 64))
    yield changed("names_far_away", put(0, 0x7fffffff))
    yield changed("bad_sections", put(3, 0xfff0))
    for shift in (1, 2, 3, 5, 8, -1, -3):
        yield changed(f"shifted_by_{shift}", each(lambda _, s, by=shift: s.__setitem__(4, s[4] + by)))
        yield changed(f"longer_by_{shift}", each(lambda _, s, by=shift: s.__setitem__(5, max(0, s[5] + by * 16))))
    generator = random.Random(11)
    yield changed("random", each(lambda _, s: s.__setitem__(4, text[ADDRESS] + generator.randrange(text[SIZE]))))
    yield changed("of_random_bytes", lambda symbols: symbols.__setitem__(
        slice(1, None), [list(SYM.unpack(generator.randbytes(SYM.size))) for _ in range(1000)]))

    library = Library(good)
    name = functions(library.symbols())[0][0]
    library.set_symbols([[0] * 6] + [[name, FUNC_GLOBAL, 0, library.index[".text"],
                                      text[ADDRESS] + generator.randrange(text[SIZE]), 16] for _ in range(300000)])
    yield "symbols_300000_of_one_name", library.bytes()
    library = Library(good)
    symbols = library.symbols()
    strings = bytearray(b"\0")
    texts = [b"\x1b[31mred\x1b[0m", b"two\nlines", b"\xff\xfe\x80", b"x" * 1000000, b"_Z" + b"N1a" * 20000, b"a b\t{c}"]
    for number, symbol in enumerate(functions(symbols)):
        symbol[0] = len(strings)
        strings += texts[number % len(texts)] + b"%d\0" % number
    library.set_symbols(symbols)
    library.set_strings(strings)
    yield "symbols_named_strangely", library.bytes()
    library = Library(good)
    library.set_strings(b"\0" + b"work" * 500)
    yield "strings_without_end", library.bytes()


def content_cases(good):
    """(name, file) where the file is cut, or a section holds rubbish."""
    library = Library(good)
    end = library.loaded_end()
    for name, size in (("after_the_loaded_part", end), ("in_debug", end + 100), ("in_symtab", library[".symtab"][OFFSET] + 30),
                       ("in_section_headers", library.table + 100), ("by_one_byte", len(good) - 1)):
        yield f"cut_{name}", good[:size]
    generator = random.Random(13)
    for name in (".debug_info", ".debug_abbrev", ".debug_line", ".symtab", ".strtab", ".shstrtab", ".comment"):
        library = Library(good)
        offset, size = library[name][OFFSET:SIZE + 1]
        library.data[offset:offset + size] = generator.randbytes(size)
        yield f"rubbish_{name.strip('.')}", library.bytes()
    # Unwind tables are loaded, but nobody unwinds here.
    for name in (".eh_frame", ".eh_frame_hdr"):
        for what, byte in (("ff", b"\xff"), ("00", b"\0"), ("random", None)):
            library = Library(good)
            offset, size = library[name][OFFSET:SIZE + 1]
            library.data[offset:offset + size] = byte * size if byte else generator.randbytes(size)
            yield f"{name.strip('.')}_{what}", library.bytes()
    packed = lzma.compress(bytes(256 << 20), preset=0)
    for what, data in (("a_bomb", packed), ("cut", packed[:len(packed) // 2]), ("rubbish", b"\xfd7zXZ\0" + b"\x55" * 1000)):
        library = Library(good)
        new_names = bytes(library.data[library[".shstrtab"][OFFSET]:][:library[".shstrtab"][SIZE]])
        library[".comment"][NAME] = len(new_names)
        library[".comment"][OFFSET], library[".comment"][SIZE] = library.append(data), len(data)
        new_names += b".gnu_debugdata\0"
        library[".shstrtab"][OFFSET], library[".shstrtab"][SIZE] = library.append(new_names), len(new_names)
        library[".symtab"][TYPE] = 1
        yield f"debugdata_{what}", library.bytes()
    for what, link in (("to_itself", b"lib.so"), ("to_a_device", b"../../../../../../dev/zero"), ("without_end", b"x" * 64)):
        library = Library(good)
        new_names = bytes(library.data[library[".shstrtab"][OFFSET]:][:library[".shstrtab"][SIZE]])
        library[".comment"][NAME] = len(new_names)
        content = link + (b"\0" * (4 - len(link) % 4) + b"\1\2\3\4" if what != "without_end" else b"")
        library[".comment"][OFFSET], library[".comment"][SIZE] = library.append(content), len(content)
        new_names += b".gnu_debuglink\0"
        library[".shstrtab"][OFFSET], library[".shstrtab"][SIZE] = library.append(new_names), len(new_names)
        library[".symtab"][TYPE] = 1
        yield f"debuglink_{what}", library.bytes()


def cases(good):
    yield "good", good
    yield from header_cases(good)
    yield from symbol_cases(good)
    yield from content_cases(good)
