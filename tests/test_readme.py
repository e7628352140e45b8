"""The documents beside the code: what they name exists, and what they show runs."""

import ast
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest

from llmpy.cli import COMMANDS, LATER, build_parser
from llmpy.cli.flags import join_values, make, read_values
from llmpy.cli.llmc_flags import translate

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/llmc.md", "docs/matmul.md",
    "docs/performance.md", "dev/LOG.md",
)  # fmt: skip

# the functions and structs of train_gpt2.c and test_gpt2.c, in their order
SEED = {
    1: """encoder_forward encoder_backward layernorm_forward layernorm_backward matmul_forward
    matmul_backward attention_forward attention_backward gelu_forward gelu_backward residual_forward
    residual_backward softmax_forward crossentropy_forward crossentropy_softmax_backward
    ParameterTensors malloc_and_point_parameters ActivationTensors malloc_and_point_activations
    GPT2Config GPT2 gpt2_build_from_checkpoint gpt2_forward gpt2_zero_grad gpt2_backward gpt2_update
    gpt2_free DataLoader dataloader_init dataloader_reset dataloader_next_batch dataloader_free
    random_u32 random_f32 sample_mult Tokenizer safe_printf tokenizer_init tokenizer_decode
    tokenizer_free main""",
    2: "check_tensor main",
}
COMMAND_NAMES = {command.name: command for command in COMMANDS}


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name, language):
    """Give the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text(name), re.M | re.S)


def tree_paths(block):
    """Give the paths of an annotated tree: a name and words on each line, folders end in `/`."""
    paths, folders = [], []
    for line in block.splitlines():
        if not line.strip():
            continue
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        folders = folders[:depth]
        paths.append("".join(folders) + name)
        if name.endswith("/"):
            folders.append(name)
    return paths


@cache
def names_of(path):
    """Give the names that a module defines: `f`, `Class`, `Class.method`, `CONSTANT`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {t.id for t in targets if isinstance(t, ast.Name)}
    return names


# the README's tree


def test_tree_is_that_of_the_files():
    (tree,) = [b for b in blocks("README.md", "text") if "\nllmpy/\n" in f"\n{b}"]
    listed = tree_paths(tree)
    assert len(listed) == len(set(listed))
    assert [p for p in listed if not (ROOT / p).exists()] == []
    there = {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "llmpy").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert {p for p in listed if p.startswith("llmpy/") and not p.endswith("/")} == there


def test_every_line_of_the_tree_says_something():
    (tree,) = [b for b in blocks("README.md", "text") if "\nllmpy/\n" in f"\n{b}"]
    bare = [line for line in tree.splitlines() if line.strip() and len(line.split()) < 2]
    assert [line.strip() for line in bare] == ["llmpy/"]


def test_tree_reader():
    tree = "a/\n  b.py   words\n  c/     words\n    d.py words\ne.py words\n"
    assert tree_paths(tree) == ["a/", "a/b.py", "a/c/", "a/c/d.py", "e.py"]


# commands and examples


def command_lines(name):
    """Give the commands `llmpy ...` of a document's shell blocks, lines that end in \\ joined."""
    shell = "\n".join(blocks(name, "sh")).replace("\\\n", " ")
    words = [shlex.split(line, comments=True) for line in shell.splitlines() if "llmpy" in line]
    return [w[w.index("llmpy") + 1 :] for w in words if "llmpy" in w]


@pytest.mark.parametrize("words", command_lines("README.md"), ids=" ".join)
def test_commands_of_the_readme_are_accepted(words):
    command = COMMAND_NAMES[words[0]]
    words = join_values(command, words[1:])
    if command.name == "train":
        words, _ = translate(words)
    given = vars(build_parser().parse_args([command.name, *words]))
    values = read_values(command, given)
    for setting in command.settings:
        make(setting, values)


def test_readme_shows_every_command():
    assert {words[0] for words in command_lines("README.md")} == set(COMMAND_NAMES)


def test_readme_says_what_is_not_built():
    missing = text("README.md").split("## What is not there yet")[1].split("\n## ")[0]
    for name in LATER:
        assert f"`{name}`" in missing, name
    for command in COMMANDS:
        for flag in command.not_built:
            assert f"`{flag}`" in missing, flag


def test_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mytext.txt").write_text("To be, or not to be.\n" * 300, encoding="utf-8")
    examples = blocks("README.md", "python")
    assert len(examples) == 2
    for example in examples:
        exec(compile(example.replace("range(2000)", "range(2)"), "README.md", "exec"), {})
    assert "ACT I.\n" in capsys.readouterr().out
    assert {p.name for p in Path("mine").iterdir()} == {"tokenizer.bin", "train.bin", "val.bin"}


# names and links of all documents


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)]+)\)", text(name)):
        if not re.match(r"https?://|#", target):
            path = ((ROOT / name).parent / target.split("#")[0]).resolve()
            assert path.exists(), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_named_files_exist(name):
    for path in re.findall(r"`((?:llmpy|tests|docs|dev|bench)/[\w./]+)`", text(name)):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", DOCUMENTS)
def test_make_targets_exist(name):
    targets = text("Makefile").split(".PHONY:")[1].split("\n")[0].split()
    for target in re.findall(r"\bmake ([a-z]+)`|^make ([a-z]+)", text(name), re.M):
        assert "".join(target) in targets, target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_are_plain(name):
    lines = text(name).splitlines()
    assert [line for line in lines if not line.isascii()] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_changelog_knows_the_version():
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[{re.escape(version)}\]", text("CHANGELOG.md"), re.M)


# docs/llmc.md


def references():
    """Give the label's file, the name in it, and the link's target of each `file.py:name`."""
    return re.findall(r"\[`?([\w/]+\.py):([\w.]+)`?\]\(([^)]+)\)", text("docs/llmc.md"))


def test_every_place_in_the_map_exists():
    found = references()
    assert len(found) == len(re.findall(r"\.py:\w", text("docs/llmc.md")))  # none escapes
    for label, name, target in found:
        path = (ROOT / "docs" / target).resolve()
        assert path.as_posix().endswith(f"/llmpy/{label}"), f"{label} links to {target}"
        assert name in names_of(path), f"{label} has no {name}"


def test_the_map_has_every_function_of_the_seed():
    rows = re.findall(r"^\| (\d\.\d+) \| `(\w+)` \|", text("docs/llmc.md"), re.M)
    want = [(f"{n}.{i}", f) for n, names in SEED.items() for i, f in enumerate(names.split(), 1)]
    assert rows == want


def test_the_reader_of_names_can_fail():
    names = names_of(ROOT / "llmpy" / "tensors.py")
    assert {"PARAMS", "Tensors", "Tensors.layer", "axis_size"} <= names
    assert not {"GPT2", "Tensors.shape", "layer"} & names
