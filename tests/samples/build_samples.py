"""Generates rag_cluster/samples: a fictional port's papers, Chinese and English, one file per format.

    python tests/samples/build_samples.py rag_cluster/samples

Needs reportlab, python-docx, openpyxl, python-pptx, pillow and a CJK font (fonts-wqy-zenhei) for the scans. The result is
committed, so nobody needs to run this; it is here to show that every word of the samples was written for this project.
"""

from __future__ import annotations

import sys
from pathlib import Path

import docx
import openpyxl
import pptx
from openpyxl.styles import Font
from PIL import Image, ImageDraw, ImageFont
from pptx.util import Inches
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Frame,
    FrameBreak,
    NextPageTemplate,
    PageBreak,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
    TableStyle,
)

CJK_FONT = "/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc"
LATIN_FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"


def scan(lines: list[tuple[str, int]], font_path: str, size: tuple[int, int]) -> Image.Image:
    """A grey, slightly uneven page with printed lines, as an office scanner gives it."""
    image = Image.new("L", size, 246)
    draw = ImageDraw.Draw(image)
    y = 120
    for text, points in lines:
        draw.text((130, y), text, font=ImageFont.truetype(font_path, points), fill=28)
        y += int(points * 1.9)
    return image.rotate(0.4, fillcolor=246, resample=Image.Resampling.BICUBIC)


def safety_report(path: Path) -> None:
    """English PDF, 8 pages: two columns, ruled tables, running header and footer, a scanned page 8."""
    styles = getSampleStyleSheet()
    body = ParagraphStyle("body", parent=styles["BodyText"], fontSize=9.5, leading=13, spaceAfter=7)
    head = ParagraphStyle("head", parent=styles["Heading1"], fontSize=15, spaceBefore=6, spaceAfter=6)
    sub = ParagraphStyle("sub", parent=styles["Heading2"], fontSize=11.5, spaceBefore=6, spaceAfter=4)
    title = ParagraphStyle("title", parent=styles["Title"], fontSize=20, spaceAfter=12)

    def furniture(canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(56, 812, "Qinghe Harbour Authority · Safety Report 2025")
        canvas.drawRightString(540, 28, f"Page {document.page} of 8")

    width, height = A4
    one = PageTemplate("one", [Frame(56, 50, width - 112, height - 110)], onPage=furniture)
    gap = (width - 112 - 18) / 2
    two = PageTemplate(
        "two", [Frame(56, 50, gap, height - 110), Frame(56 + gap + 18, 50, gap, height - 110)], onPage=furniture
    )
    scanned = scan(
        [
            ("CERTIFICATE OF INSPECTION", 46),
            ("Certificate number: QH-CR-7741", 34),
            ("Object: ship-to-shore crane number 4", 34),
            ("The hoist brake was tested at 125 percent of rated load.", 34),
            ("Result: passed without remarks.", 34),
            ("The next inspection is due on 14 March 2027.", 34),
            ("Inspector: Marta Velkova", 34),
        ],
        LATIN_FONT,
        (1240, 1754),
    )

    def scanned_page(canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.drawImage(ImageReader(scanned), 0, 0, width, height)

    scan_template = PageTemplate("scan", [Frame(56, 50, width - 112, height - 110)], onPage=scanned_page)
    document = BaseDocTemplate(
        str(path),
        pagesize=A4,
        pageTemplates=[one, two, scan_template],
        title="Safety Report 2025",
        author="Qinghe Harbour",
    )
    p = lambda text: Paragraph(text, body)  # noqa: E731
    grid = TableStyle([("GRID", (0, 0), (-1, -1), 0.6, colors.black), ("FONTSIZE", (0, 0), (-1, -1), 9)])
    incidents = Table(
        [
            ["Quarter", "Lost-time injuries", "Near misses", "Fires"],
            ["Q1", "3", "41", "0"],
            ["Q2", "2", "38", "1"],
            ["Q3", "1", "52", "0"],
            ["Q4", "2", "47", "0"],
        ],
        style=grid,
    )
    tides = Table(
        [
            ["Warning level", "Water above datum", "Action"],
            ["Blue", "4.10 m", "Stop work in the lower yard"],
            ["Yellow", "4.45 m", "Close gates 1 and 2"],
            ["Red", "4.80 m", "Evacuate the lower yard"],
        ],
        style=grid,
    )
    story = [
        Paragraph("Safety Report 2025", title),
        Paragraph("1 Summary", head),
        p(
            "This report describes the safety of people, ships and cargo in Qinghe Harbour in the year 2025. "
            "Eight lost-time injuries were recorded, five fewer than in the year before. The number of near misses that "
            "were reported rose to 178, which the Authority regards as a sign of trust and not of danger."
        ),
        p(
            "The harbour handled 4,812 ship calls. No ship ran aground inside the breakwaters, and the single fire of the "
            "year, in a switch room of berth 6, was put out within eleven minutes by the terminal's own crew."
        ),
        Paragraph("1.1 Incidents by quarter", sub),
        incidents,
        Spacer(1, 8),
        p("Table 1 counts every event that was entered in the incident register before 15 January 2026."),
        NextPageTemplate("two"),
        PageBreak(),
        Paragraph("2 Cranes", head),
    ]
    story += [
        p(text)
        for text in (
            "The harbour operates seven ship-to-shore cranes. Cranes 1 to 3 were built in 2009 and work berths 1 and 2; "
            "cranes 4 to 7 were delivered in 2018 and can reach across twenty-two rows of containers.",
            "Work on every crane stops when the mean wind speed over ten minutes exceeds 20 metres per second. The boom is "
            "then raised and the crane is pinned to the quay. In 2025 this happened on nineteen days, most of them in "
            "November and December.",
            "The wire ropes of the main hoist are replaced after 2,400 operating hours or after eighteen months, whichever "
            "comes first. Rope inspections found broken strands twice, both times on crane 2, and both ropes were "
            "replaced during the same shift.",
            "Operators work in the cabin for at most four hours without a break. Since May 2025 a second operator stands "
            "by during night shifts, which has halved the number of hard landings.",
        )
    ]
    story += [FrameBreak(), Paragraph("3 Vehicles in the yard", head)]
    story += [
        p(text)
        for text in (
            "Yard tractors may drive at 25 kilometres per hour on marked lanes and at 10 kilometres per hour between the "
            "stacks. Speed is limited electronically; the limiter of every tractor is checked each quarter.",
            "Pedestrians enter the stacks only through the staffed crossing at gate 3. Two injuries of the year happened "
            "where this rule was broken, and the fence beside lane 14 has since been raised to two metres.",
            "Automated guided vehicles were tried on lane 20 from June to August. During 6,300 trips the vehicles stopped "
            "412 times for people or objects, and no contact was recorded.",
        )
    ]
    pages = [
        (
            "4 Dangerous goods",
            [
                "Containers with dangerous goods are stored in block D only. Class 1 explosives are not accepted at all; "
                "they are sent to the naval pier at Shiwan, 34 kilometres up the coast.",
                "Block D is inspected every six hours. Its drains lead to a closed basin of 900 cubic metres, so that "
                "spilled liquids do not reach the river.",
                "Three leaks were found in 2025: two of diesel and one of acetic acid. None passed the closed basin.",
            ],
        ),
        (
            "5 Fire protection",
            [
                "Each berth has two hydrants that deliver 60 litres per second at 10 bar. The fire tug Haiyan lies at pier 5 "
                "and is ready to sail within seven minutes, day and night.",
                "The switch room of berth 6, where the fire of 12 May broke out, has been fitted with a gas extinguishing "
                "system. The cause was a loose terminal in cabinet 11.",
            ],
        ),
        (
            "6 Training",
            [
                "Every new employee attends a safety course of sixteen hours before the first shift. The course is held in "
                "Chinese on Mondays and in English on Thursdays.",
                "In 2025 a total of 640 people finished the course; the mean mark in the final test was 87 of 100.",
            ],
        ),
        (
            "7 Air and noise",
            [
                "Ships at berths 3 to 5 can take electricity from the shore. In 2025, 38 percent of their calls did so, which "
                "saved about 5,100 tonnes of fuel oil.",
                "Noise at the school in Linhai Road stayed below 52 decibels in all but two nights.",
            ],
        ),
    ]
    for heading, paragraphs in pages:
        story += [NextPageTemplate("one"), PageBreak(), Paragraph(heading, head), *[p(text) for text in paragraphs]]
    story += [
        NextPageTemplate("one"),
        PageBreak(),
        Paragraph("8 Storms and high water", head),
        p(
            "Typhoon Meiling passed 60 kilometres south of the harbour on 9 September 2025. The tide gauge at the lock "
            "recorded its highest level since 1997, 4.62 metres above datum, at 03:40 in the night."
        ),
        tides,
        Spacer(1, 8),
        p("The gates were closed for fourteen hours. Eleven ships waited in the outer roads and none was damaged."),
        NextPageTemplate("scan"),
        PageBreak(),
        Spacer(1, 1),
    ]
    document.build(story)


def maintenance_manual(path: Path) -> None:
    """Chinese DOCX with headings, lists and a table with merged cells."""
    document = docx.Document()
    document.core_properties.title = "岸桥设备维护手册"
    document.add_heading("岸桥设备维护手册", level=1)
    document.add_paragraph("本手册适用于清河港全部七台岸边集装箱起重机（以下简称岸桥），由设备管理部负责修订。")
    document.add_heading("一、日常检查", level=2)
    document.add_paragraph("每班开工前，司机应当完成以下检查，并在点检表上签字：")
    for item in ("检查制动器间隙，标准值为1.2毫米。", "检查钢丝绳表面有无断丝。", "试验紧急停止按钮和超速保护。"):
        document.add_paragraph(item, style="List Bullet")
    document.add_heading("二、润滑周期", level=2)
    document.add_paragraph("润滑油脂统一采用二硫化钼锂基脂，各部位的润滑周期见下表。")
    table = document.add_table(rows=5, cols=3)
    table.style = "Table Grid"
    for column, text in enumerate(("部位", "周期（小时）", "用量（克）")):
        table.cell(0, column).text = text
    rows = (
        ("起升机构", "250", "180"),
        ("小车机构", "250", "120"),
        ("大车行走机构", "500", "400"),
        ("俯仰铰点", "1000", "650"),
    )
    for r, row in enumerate(rows, start=1):
        for c, text in enumerate(row):
            table.cell(r, c).text = text
    document.add_heading("三、故障处理", level=2)
    document.add_heading("1. 起升超载报警", level=3)
    document.add_paragraph(
        "报警后应立即停止起升，将吊具缓慢下降至地面，核对舱单重量。未经值班工程师李敏批准，不得复位报警。"
    )
    document.add_heading("2. 吊具锁销不到位", level=3)
    document.add_paragraph("连续两次着箱后锁销仍不到位的，应更换备用吊具。备用吊具存放在三号泊位的检修间，共有两副。")
    document.save(str(path))


def throughput(path: Path) -> None:
    """Bilingual XLSX: monthly TEU per berth, formats, a merged title and a hidden sheet."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "吞吐量 Throughput"
    sheet["A1"] = "2025年各泊位集装箱吞吐量（TEU）"
    sheet.merge_cells("A1:E1")
    sheet.append(["月份 Month", "泊位1 Berth 1", "泊位2 Berth 2", "泊位3 Berth 3", "同比 Growth"])
    figures = [
        (41250, 38900, 52310, 0.031), (36480, 35120, 47890, -0.012), (44720, 41035, 55640, 0.048),
        (45910, 42380, 57205, 0.055), (47300, 43960, 58870, 0.062), (46115, 42790, 58120, 0.047),
        (48860, 45210, 60415, 0.071), (49540, 45875, 61330, 0.068), (38205, 36410, 49760, -0.094),
        (47985, 44620, 59940, 0.052), (46730, 43515, 58660, 0.044), (45390, 42205, 57475, 0.039),
    ]  # fmt: skip
    for month, (first, second, third, growth) in enumerate(figures, start=1):
        sheet.append([f"{month}月", first, second, third, growth])
    for row in sheet.iter_rows(min_row=3, min_col=2, max_col=4):
        for cell in row:
            cell.number_format = "#,##0"
    for row in range(3, 15):
        sheet.cell(row, 5).number_format = "0.0%"
    for cell in sheet[2]:
        cell.font = Font(bold=True)
    costs = book.create_sheet("成本 Costs")
    costs.append(["项目 Item", "预算（万元）", "实际（万元）"])
    for row in (
        ("电费 Electricity", 1860, 1925.5),
        ("拖轮租金 Tug hire", 740, 712),
        ("航道疏浚 Dredging", 2300, 2487.3),
    ):
        costs.append(row)
    hidden = book.create_sheet("draft")
    hidden.append(["未核实数据，请勿引用"])
    hidden.sheet_state = "hidden"
    book.save(str(path))


def quarterly_deck(path: Path) -> None:
    """Chinese PPTX with bullets, a table and speaker notes."""
    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[0])
    first.shapes.title.text = "清河港2025年第四季度经营汇报"
    first.placeholders[1].text = "市场部 2026年1月"
    second = deck.slides.add_slide(deck.slide_layouts[1])
    second.shapes.title.text = "新开航线"
    frame = second.placeholders[1].text_frame
    frame.text = "清河—釜山：每周三班，由东海航运执行"
    for text in ("清河—海防：每周一班，10月12日首航", "清河—胡志明：筹备中，预计2026年4月开通"):
        frame.add_paragraph().text = text
    second.notes_slide.notes_text_frame.text = "海防航线首航的舱位利用率为百分之八十三，高于预期的百分之七十。"
    third = deck.slides.add_slide(deck.slide_layouts[5])
    third.shapes.title.text = "客户满意度"
    table = third.shapes.add_table(4, 3, Inches(1), Inches(2), Inches(8), Inches(2)).table
    for r, row in enumerate((("指标", "2024", "2025"), ("船期准点率", "91.2%", "94.6%"), ("单船作业效率", "98箱/时", "107箱/时"),
                             ("投诉件数", "57", "36"))):  # fmt: skip
        for c, text in enumerate(row):
            table.cell(r, c).text = text
    third.notes_slide.notes_text_frame.text = "投诉主要集中在提箱排队时间，二季度上线预约系统后明显下降。"
    deck.save(str(path))


TARIFF = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Port tariff 2026</title></head>
<body><nav><a href="/">Home</a> <a href="/contact">Contact</a></nav>
<main><h1>Port tariff 2026</h1>
<p>These charges are valid from 1 January 2026 for every ship that enters Qinghe Harbour.</p>
<h2>Mooring</h2>
<p>Mooring is charged for each started period of 24 hours. A ship that leaves within six hours pays half.</p>
<table><caption>Mooring charges</caption>
<thead><tr><th>Length of ship</th><th>Charge per 24 hours</th></tr></thead>
<tbody><tr><td>below 100 m</td><td>1,850 yuan</td></tr><tr><td>100 to 200 m</td><td>4,300 yuan</td></tr>
<tr><td>above 200 m</td><td>7,900 yuan</td></tr></tbody></table>
<h2>Storage of containers</h2>
<p>The first five days are free of charge. From the sixth day on, storage costs 60 yuan a day for a twenty-foot container
and 110 yuan a day for a forty-foot container. Refrigerated containers pay a surcharge of 95 yuan a day for electricity.</p>
<h2>Pilotage</h2><ul><li>Pilots are compulsory for ships longer than 90 metres.</li>
<li>A pilot is ordered at least four hours ahead on VHF channel 14.</li></ul></main>
<footer>Copyright Qinghe Harbour Authority</footer></body></html>
"""

ONBOARDING = """---
title: Working at the harbour 入职指南
---
# Working at the harbour 入职指南

## First day 第一天

1. Collect your badge at gate 1, room 102. 请在一号门102室领取工牌。
2. Sign the safety rules. 签署安全守则。
3. Meet your mentor in the canteen at 12:30. 十二点半在食堂与导师见面。

## Computer account 电脑账号

The initial password is sent by text message and expires after 48 hours. 初始密码以短信发送，48小时后失效。

```sh
ssh yourname@gateway.qinghe.example
```

## Holidays 休假

| Years of service 工龄 | Days of leave 年假天数 |
| --- | --- |
| below 5 / 不满5年 | 12 |
| 5 to 10 / 5至10年 | 16 |
| above 10 / 10年以上 | 20 |

> Requests go to the head of the shift at least two weeks ahead. 请至少提前两周向班长申请。
"""

EMERGENCY = """清河港防台风应急预案

一、启动条件
中央气象台预报未来四十八小时内本港平均风力达到八级以上时，启动三级响应；达到十级以上时，启动二级响应；达到十二级以上时，启动一级响应。

二、职责分工
应急指挥部设在港口调度楼六层，总指挥由港务局副局长周建国担任。调度中心负责通知全部在港船舶，工程部负责加固岸桥和堆场设备。

三、堆场措施
二级响应启动后，空箱堆垛高度不得超过三层，并用绑扎带固定外侧两排。危险品箱应提前移入库区，六小时内完成。

四、复工检查
风力降至六级以下并持续两小时后，由安全部组织复工检查。检查合格并经总指挥签字后，方可恢复作业。
"""


def notice(path: Path) -> None:
    """A scanned Chinese notice as PNG."""
    scan(
        [
            ("停电检修通知", 64),
            ("各部门：", 40),
            ("二号变电所定于2026年3月8日", 40),
            ("凌晨1点至5点停电检修。", 40),
            ("期间冷藏箱由移动发电机供电。", 40),
            ("联系人：陈志远，分机号6215。", 40),
            ("清河港动力科", 40),
        ],
        CJK_FONT,
        (1000, 900),
    ).save(path)


def main(folder: Path) -> None:
    """Write every sample."""
    folder.mkdir(parents=True, exist_ok=True)
    safety_report(folder / "safety_report_2025.pdf")
    maintenance_manual(folder / "岸桥设备维护手册.docx")
    throughput(folder / "throughput_2025.xlsx")
    quarterly_deck(folder / "第四季度经营汇报.pptx")
    (folder / "tariff_2026.html").write_text(TARIFF, encoding="utf-8")
    (folder / "onboarding.md").write_text(ONBOARDING, encoding="utf-8")
    (folder / "防台风应急预案.txt").write_text(EMERGENCY, encoding="utf-8")
    notice(folder / "停电检修通知.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
